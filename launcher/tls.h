/* SPDX-License-Identifier: Apache-2.0 */
/* What the shared object gsaas-tls.so offers to gsaas-run.so: connections over TLS. */
#ifndef GSAAS_TLS_H
#define GSAAS_TLS_H

#include <event2/bufferevent.h>

#define TLS_OBJECT "gsaas-tls.so"
#define TLS_FUNCTION "gsaas_tls_new"

/* Return a bufferevent that is to be connected to *host*, a name or an address, and accepts only a certificate for it,
 * from one in the file *bundle* (NULL: from one that OpenSSL trusts by default); NULL if OpenSSL cannot do this. */
struct bufferevent *gsaas_tls_new(struct event_base *base, const char *host, const char *bundle);
typedef struct bufferevent *tls_function(struct event_base *base, const char *host, const char *bundle);

#endif
