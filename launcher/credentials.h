/* The credentials file that `gsaas.client.credentials` describes, as far as this program can use it. */
#ifndef GSAAS_CREDENTIALS_H
#define GSAAS_CREDENTIALS_H

#include <stdbool.h>

#include "http.h"

/* Fill in where the API is and the token. False if somebody else has to say what is wrong, or to speak for us: the
 * file is missing, open to others or odd; the API is reached by https; the credentials are Keystone's. */
bool credentials_read(struct server *server);

#endif
