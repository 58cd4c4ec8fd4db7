/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the credentials file that gsaasclient.credentials describes, as far as this program supports it. */
#ifndef GSAAS_CREDENTIALS_H
#define GSAAS_CREDENTIALS_H

#include <stdbool.h>

#include "http.h"

/* Set the address of the API and the token. Return false if gsaas-cli has to take over: because the file is missing,
 * readable by other users or not valid (it prints the error message), or because the API uses https or Keystone. */
bool credentials_read(struct server *server);

#endif
