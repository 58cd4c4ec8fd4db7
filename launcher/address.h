/* SPDX-License-Identifier: Apache-2.0 */
/* Looks hosts up. */
#ifndef GSAAS_ADDRESS_H
#define GSAAS_ADDRESS_H

#include <netdb.h>
#include <stddef.h>

/* Return the addresses of *host*, for the caller to free with freeaddrinfo; NULL, with the reason, if there are none. */
struct addrinfo *address_find(const char *host, const char *port, char *reason, size_t size);

#endif
