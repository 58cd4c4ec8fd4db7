/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of the command: this program's own, and the variables of the lease.
 * client/gsaasclient/cli/environments.py follows the same rules. */
#ifndef GSAAS_ENVIRONMENT_H
#define GSAAS_ENVIRONMENT_H

#include "text.h"

/* Return this program's environment with the variables in *added*, each of which ends with NUL, in place of those of the
 * same name. Only LD_LIBRARY_PATH keeps what the user has: the lease's directories come first, unless they are in it
 * already. NULL if there is no memory. The strings are those of *added*, which may grow, and of `environ`. */
char **environment_merge(struct text *added);

#endif
