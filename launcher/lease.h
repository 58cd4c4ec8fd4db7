/* SPDX-License-Identifier: Apache-2.0 */
/* A lease of cGPUs: requested, kept alive, released. */
#ifndef GSAAS_LEASE_H
#define GSAAS_LEASE_H

#include <stdbool.h>

#include "http.h"
#include "request.h"

struct lease {
    struct server *server;
    char *id;                /* NULL: there is no lease */
    struct text environment; /* NAME=value, each followed by NUL */
    int interrupt;           /* a descriptor that becomes readable when a signal arrives */
};

/* Request the lease and wait until it is ACTIVE. Return 0, or the exit status after printing an error message. If a
 * signal ends the wait, give up the place in the queue and return -1; the signal remains readable. */
int lease_allocate(struct lease *lease, const struct request *request);

/* Renew the lease; return false if the API says that it has ended. An API that does not answer counts as a success. */
bool lease_keep_alive(struct lease *lease);

/* Release the cGPUs. If that fails, print that the lease ends by itself. */
void lease_release(struct lease *lease);

#endif
