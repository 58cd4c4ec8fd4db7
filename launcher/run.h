/* SPDX-License-Identifier: Apache-2.0 */
/* What the shared object gsaas-run.so offers to the program `gsaas`. */
#ifndef GSAAS_RUN_H
#define GSAAS_RUN_H

#define RUN_FUNCTION "gsaas_run"

/* Run the command line `gsaas run …` and return the exit status. If gsaas-cli has to take over, this does not return. */
int gsaas_run(int argc, char **argv);
typedef int run_function(int argc, char **argv);

#endif
