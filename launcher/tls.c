/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever this refuses is tried again by gsaas-cli, so this is as strict as the strictest Python: a certificate has to
 * name its host among its alternative names. */
#include "tls.h"

#include <arpa/inet.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <string.h>

/* Return what trusts the certificates in the file *bundle*, or those that OpenSSL trusts by default; NULL if they cannot be
 * read. They are read once: all connections of this program have the same, and a bundle takes long. */
static SSL_CTX *trusting(const char *bundle)
{
    static SSL_CTX *context;
    if (context || !(context = SSL_CTX_new(TLS_client_method())))
        return context;
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1
        || (bundle ? SSL_CTX_load_verify_locations(context, bundle, NULL) : SSL_CTX_set_default_verify_paths(context)) != 1) {
        SSL_CTX_free(context);
        context = NULL;
    }
    return context;
}

/* Accept a certificate for this host alone. */
static bool expect(SSL *session, const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    X509_VERIFY_PARAM *wanted = SSL_get0_param(session);
    X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(wanted, host) == 1;
    return SSL_set1_host(session, host) == 1 && SSL_set_tlsext_host_name(session, host) == 1;
}

struct bufferevent *gsaas_tls_new(struct event_base *base, const char *host, const char *bundle)
{
    SSL_CTX *context = trusting(bundle);
    SSL *session = context ? SSL_new(context) : NULL;
    struct bufferevent *made = NULL;
    if (session && expect(session, host))
        made = bufferevent_openssl_socket_new(base, -1, session, BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
    if (made)
        bufferevent_openssl_set_allow_dirty_shutdown(made, 0); /* an answer that was cut off is none */
    else
        SSL_free(session);
    return made;
}
