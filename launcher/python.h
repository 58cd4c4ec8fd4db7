/* SPDX-License-Identifier: Apache-2.0 */
/* Runs gsaas-cli, the same program in Python, which is installed beside this one. */
#ifndef GSAAS_PYTHON_H
#define GSAAS_PYTHON_H

#include <stdbool.h>
#include <stddef.h>

#define PYTHON_SIGN_IN "renew-token" /* has gsaas-cli authenticate anew and cache the token; see gsaasclient.cli.main */

/* Write the path of the file *name* in the folder of this program. Return false if that folder is not known. */
bool beside_program(char *path, size_t size, const char *name);

/* Replace this program by gsaas-cli with the same arguments; return the exit status if that fails. */
int python_exec(char **argv);

/* Run gsaas-cli with these arguments, the first of which is the program's name. It gets no input, and its output is
 * discarded. Return whether it ended within *seconds* with exit status 0; after that time it is killed. */
bool python_run(char **words, int seconds);

#endif
