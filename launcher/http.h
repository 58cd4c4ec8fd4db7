/* SPDX-License-Identifier: Apache-2.0 */
/* An HTTP/1.1 client (RFC 9112) for one server, over one persistent connection. */
#ifndef GSAAS_HTTP_H
#define GSAAS_HTTP_H

#include <stdbool.h>
#include <sys/socket.h>

#include "text.h"

struct server {
    char *host, *port; /* of the URL; numbers or names */
    char *path;        /* prefix of every path, without a slash at the end */
    char *token;
    int socket;        /* -1: not connected */
    bool used;         /* the connection has carried an exchange; the server may have closed it since */
};

struct response {
    int status;
    struct text body;
};

enum outcome {
    COMPLETED,
    FAILED,      /* errno has the reason */
    INTERRUPTED, /* *interrupt* became readable first; http_exchange has closed the connection */
};

/* Send a request and read the response; *body* is JSON, or NULL. The next bytes may take at most *seconds*.
 *
 * *interrupt* is a descriptor that ends the wait when it becomes readable, or -1. A request that is lost with a used
 * connection is sent again over a new one if it is *idempotent*. One with a *key*, its Idempotency-Key, is sent again once
 * whenever its connection breaks. */
enum outcome http_exchange(struct server *server, const char *method, const char *path, const char *body, int seconds,
                           int interrupt, bool idempotent, const char *key, struct response *response);

/* Connect, unless the server is connected. Return false on failure, with the reason in errno. */
bool http_connect(struct server *server);

/* Send all bytes, or receive more bytes and append them, with timeout and interrupt as in http_exchange. */
enum outcome http_send(struct server *server, const struct text *bytes);
enum outcome http_receive(struct server *server, struct text *text, int seconds, int interrupt);

void http_close(struct server *server);

#endif
