/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the command line of `gsaas run` into the body of POST /v1/leases and the command. */
#ifndef GSAAS_REQUEST_H
#define GSAAS_REQUEST_H

#include <stdbool.h>

enum { KEEPALIVE = 60 }; /* seconds of silence after which GSaaS takes this program for dead, and ends the lease */

struct request {
    char *body;     /* JSON; the caller frees it */
    char **command; /* ends with NULL */
    bool waits; /* in the queue, if the request does not fit now */
    const char *version; /* the microversion that the body needs */
};

/* Parse the words after `run`. Return false for a line that is not valid: gsaasclient.cli.parser prints the error message. */
bool request_read(char **words, struct request *request);

#endif
