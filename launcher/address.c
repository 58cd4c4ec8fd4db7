/* SPDX-License-Identifier: Apache-2.0 */
#include "address.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct addrinfo *address_find(const char *host, const char *port, char *reason, size_t size)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int error = getaddrinfo(host, port, &hints, &found);
    if (error)
        snprintf(reason, size, "%s: %s", host, error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    return error ? NULL : found;
}
