/* SPDX-License-Identifier: Apache-2.0 */
/* A persistent connection to an HTTP server, over TLS if its URL says https. libevent speaks HTTP; TLS is in
 * gsaas-tls.so, which is loaded only if it is needed. */
#ifndef GSAAS_CONNECTION_H
#define GSAAS_CONNECTION_H

#include <stdbool.h>

#include "text.h"

struct connection;

struct header {
    const char *name, *value;
};

/* A request, and what has come of it. */
struct exchange {
    const char *method; /* GET, POST or DELETE */
    const char *path;   /* with its query; it follows the path of the URL */
    const char *body;   /* NULL: none */
    const struct header *headers; /* the last one has no name */
    int seconds;        /* after which the response has to be complete */
    int interrupt;      /* a descriptor that ends the wait when it becomes readable, or -1 */
    int patience;       /* seconds after which `slow` is called, once; 0: never */
    void (*slow)(const struct exchange *exchange);
    long status;
    struct text answer; /* the body of the response; the caller frees it */
    bool timed_out;
    char reason[256];   /* why it failed */
};

enum outcome {
    COMPLETED,
    FAILED,      /* `reason` says why; the server may have received the request */
    UNSENT,      /* the same, and nothing was sent: there was no connection */
    INTERRUPTED, /* *interrupt* became readable first; the connection is closed */
};

/* Return a connection for the http or https *url*, which is opened by the first exchange; NULL if that is no URL.
 * *bundle* is the file of the certificates to trust; NULL: those that OpenSSL trusts by default. The caller keeps them
 * as long as the connection. */
struct connection *connection_new(const char *url, const char *bundle);

/* Whether an exchange has left the connection open. The server may have closed it since. */
bool connection_is_open(const struct connection *connection);

/* Send a request and read the response. */
enum outcome connection_exchange(struct connection *connection, struct exchange *exchange);

/* Close and free it; it may be NULL. */
void connection_free(struct connection *connection);

#endif
