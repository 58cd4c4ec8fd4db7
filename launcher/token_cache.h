/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the cache of Keystone's tokens, which gsaas-cli writes; client/gsaasclient/token_cache.py describes it. */
#ifndef GSAAS_TOKEN_CACHE_H
#define GSAAS_TOKEN_CACHE_H

#include <stdbool.h>

#include "api.h"

/* Set the API's URL, the token and the certificates to trust. Return false, and leave *api* as it is, if there is no valid
 * token for the credentials in this environment. */
bool token_cache_read(struct api *api);

/* Remove the token from the cache, unless another has been stored meanwhile. */
void token_cache_drop(const struct api *api);

/* Replace the token by the one that is cached now; return false if there is none, or only the same. */
bool token_cache_renew(struct api *api);

#endif
