/* What `gsaas run` is asked for on its line: the body of POST /v1/leases, and the command. */
#ifndef GSAAS_REQUEST_H
#define GSAAS_REQUEST_H

#include <stdbool.h>

#include "text.h"

enum { KEEPALIVE = 60 }; /* seconds of silence after which GSaaS takes the launcher for dead */

struct request {
    struct text body;
    char **command; /* ends with NULL */
    bool waits;
};

/* Read the words after `run`. False for whatever is not plainly right: `gsaas.cli.parser` finds the words for it. */
bool request_read(char **words, struct request *request);

#endif
