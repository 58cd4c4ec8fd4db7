/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of Slurm's header of this name: what the plug-in uses of it. spank(8) describes these functions; main.c
 * has them. A test with Slurm's own header is in tests/slurm. */
#include <stddef.h>

typedef void *spank_t;
typedef enum { ESPANK_SUCCESS, ESPANK_ERROR, ESPANK_ENV_NOEXIST, ESPANK_NOSPACE } spank_err_t;
enum spank_context { S_CTX_LOCAL, S_CTX_REMOTE, S_CTX_ALLOCATOR, S_CTX_SLURMD, S_CTX_JOB_SCRIPT };
enum spank_item { S_JOB_ID, S_JOB_UID };
struct spank_option {
    char *name, *arginfo, *usage;
    int has_arg, val;
    int (*cb)(int, const char *, int);
};

#define SPANK_PLUGIN(name, version) const char plugin_name[] = #name

int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv);
enum spank_context spank_context(void);
spank_err_t spank_option_register(spank_t spank, struct spank_option *option);
spank_err_t spank_get_item(spank_t spank, enum spank_item item, ...);
spank_err_t spank_getenv(spank_t spank, const char *name, char *value, int length);
spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite);
spank_err_t spank_job_control_setenv(spank_t spank, const char *name, const char *value, int overwrite);
void slurm_error(const char *format, ...);
