/* HTTP/1.1 (RFC 9112) to one server, over one connection that is kept. */
#ifndef GSAAS_HTTP_H
#define GSAAS_HTTP_H

#include <stdbool.h>
#include <sys/socket.h>

#include "text.h"

struct server {
    char *host, *port; /* of the URL; numbers or names */
    char *path;        /* what every path begins with, without a slash at the end */
    char *token;
    int socket;        /* -1: not connected */
    bool used;         /* the connection has carried an exchange, and may have gone stale */
};

struct answer {
    int status;
    struct text body;
};

enum outcome {
    ANSWERED,
    NO_ANSWER,   /* errno says why */
    INTERRUPTED, /* *interrupt* became readable first; the connection is closed */
};

/* One request; *body* is JSON, or NULL. Waits for at most *seconds* for the next bytes.
 *
 * *interrupt* is a descriptor whose readability ends the wait, or -1. A request that a stale connection swallowed is
 * sent once more over a new one, if *again* says that doing it twice is doing it once. */
enum outcome http_exchange(struct server *server, const char *method, const char *path, const char *body, int seconds,
                           int interrupt, bool again, struct answer *answer);

/* Connect, unless it is; false with errno saying why not. */
bool http_connect(struct server *server);

/* Send all, or wait for more bytes of what is sent to us, as `http_exchange` does. */
enum outcome http_send(struct server *server, const struct text *bytes);
enum outcome http_receive(struct server *server, struct text *text, int seconds, int interrupt);

void http_close(struct server *server);

#endif
