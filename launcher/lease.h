/* SPDX-License-Identifier: Apache-2.0 */
/* A lease of cGPUs: requested, kept alive, released. */
#ifndef GSAAS_LEASE_H
#define GSAAS_LEASE_H

#include <stdbool.h>

#include "api.h"
#include "request.h"
#include "text.h"

struct lease {
    struct api *api;
    char *id;                /* NULL: there is no lease */
    struct text environment; /* NAME=value, each followed by NUL */
    int interrupt;           /* a descriptor that becomes readable when a signal arrives */
    bool hurried;            /* one has arrived: nobody wants to wait for the API any longer */
};

enum {
    LEASE_INTERRUPTED = -1, /* a signal has ended the wait; it remains readable */
    LEASE_MAY_STAY = -3, /* the same, and the API does not say whether there is a lease; it would end by itself */
    LEASE_LEFT = -2,        /* there is no lease, and gsaas-cli asks again: the API was not reached, or did not accept the request */
};

/* Request the lease and wait until it is ACTIVE. Return 0, one of the values above, or the exit status after printing an
 * error message. There is no lease then: a place in the queue is given up. */
int lease_allocate(struct lease *lease, const struct request *request);

/* Renew the lease; return false if the API says that it has ended. An API that does not answer counts as a success. */
bool lease_keep_alive(struct lease *lease);

/* Release the cGPUs. If that fails, print that the lease ends by itself, and return false. */
bool lease_release(struct lease *lease);

#endif
