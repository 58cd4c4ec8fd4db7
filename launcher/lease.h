/* A lease of cGPUs: asked for, kept alive, given back. */
#ifndef GSAAS_LEASE_H
#define GSAAS_LEASE_H

#include <stdbool.h>

#include "http.h"
#include "request.h"

struct lease {
    struct server *server;
    char *id; /* NULL: there is none */
    struct text environment; /* NAME=value, each with a NUL at its end */
    int interrupt; /* a descriptor that becomes readable when a signal has come */
};

/* Take the cGPUs and return 0, or the exit status after having said why there are none. When a signal ends a wait, the
 * place in the queue is given back and -1 returned; the signal is still to be read. */
int lease_take(struct lease *lease, const struct request *request);

/* Tell GSaaS that we are still here; false if it says that the lease is none any more. */
bool lease_keep(struct lease *lease);

/* Give the cGPUs back, or say that they come back by themselves. */
void lease_give_back(struct lease *lease);

#endif
