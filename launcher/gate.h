/* SPDX-License-Identifier: Apache-2.0 */
/* Shows a grant at the gate of a GPU host, as gsaasclient/grant_client.py does. */
#ifndef GSAAS_GATE_H
#define GSAAS_GATE_H

#include <stdbool.h>

#include "text.h"

/* Show the grant of a lease at *gate*, which is HOST:PORT (an IPv6 address in brackets); return whether it was admitted. Otherwise *reply* says why
 * not. */
bool gate_show_grant(const char *gate, const char *lease, const char *grant, int seconds, struct text *reply);

#endif
