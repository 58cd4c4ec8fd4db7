/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the API and the token, as gsaasclient.credentials describes, as far as this program supports it. */
#ifndef GSAAS_CREDENTIALS_H
#define GSAAS_CREDENTIALS_H

#include <stdbool.h>

#include "api.h"

/* Set the API's URL, the token and the certificates to trust. Return false if gsaas-cli has to take over: because the file
 * is missing, readable by other users or not valid (it prints the error message), or because no token of Keystone is
 * cached. */
bool credentials_read(struct api *api);

#endif
