/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the API of GSaaS, over one persistent connection. Documents are values of jansson. */
#ifndef GSAAS_API_H
#define GSAAS_API_H

#include <jansson.h>
#include <stdbool.h>

#include "connection.h"

#define API_VERSION "1.0"          /* the microversion of requests, unless they need a newer one */
#define RESERVATIONS_VERSION "1.7" /* the one that has launches in reservations */
#define KINDS_VERSION "1.9"        /* the one that tells kinds of devices apart */
#define ENDS_VERSION "1.11"        /* the one whose leases may have an end */

struct api {
    char *url;         /* http or https, without a slash at the end */
    char *token;
    char *bundle;      /* the file of the certificates to trust; NULL: those that OpenSSL trusts by default */
    bool cached;       /* the token is Keystone's, from the cache */
    struct connection *connection; /* NULL: nothing has been sent yet */
    int patience;      /* seconds after which a wait for an answer is said on standard error; 0: never */
    char reason[256];  /* why the last exchange failed */
};

struct response {
    long status;
    json_t *document; /* NULL: the body is no JSON */
};

/* Whether *url* and *token* can be used here: an http or https URL without user, query and fragment, and a token that can
 * be sent in a header. */
bool api_accepts(const char *url, const char *token);

/* Set copies of these in an empty *api*; *bundle* may be NULL. */
void api_use(struct api *api, const char *url, const char *token, const char *bundle, bool cached);

/* Send a request of the microversion *version* and read the response, which has to be complete after *seconds*; *body* is
 * JSON, or NULL.
 *
 * *interrupt* is a descriptor that ends the wait when it becomes readable, or -1. A request that is lost with a used
 * connection is sent again over a new one if it is *idempotent*. One with a *key*, its Idempotency-Key, is sent again once
 * whenever its connection breaks. The caller frees the response, whatever the outcome. */
enum outcome api_exchange(struct api *api, const char *method, const char *path, const char *version,
                          const char *body, int seconds, int interrupt, bool idempotent, const char *key,
                          struct response *response);

/* Free what a response has; it can be used again. */
void response_free(struct response *response);

/* Close the connection and free what *api* has. */
void api_free(struct api *api);

#endif
