/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the plug-in as slurmstepd does for a task of job 17 of user 1000, whose environment is this program's own, with the arguments
 * of this program as those of plugstack.conf. Prints the task's environment, if the task may start. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <slurm/spank.h>

extern char **environ;

enum spank_context spank_context(void)
{
    return S_CTX_REMOTE;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
    (void)spank, (void)option;
    return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t spank, enum spank_item item, ...)
{
    (void)spank;
    va_list values;
    va_start(values, item);
    if (item == S_JOB_ID)
        *va_arg(values, uint32_t *) = 17;
    else
        *va_arg(values, uid_t *) = 1000;
    va_end(values);
    return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *value, int length)
{
    const char *found = getenv(name);
    (void)spank;
    if (found == NULL)
        return ESPANK_ENV_NOEXIST;
    return snprintf(value, (size_t)length, "%s", found) < length ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
    (void)spank;
    return setenv(name, value, overwrite) == 0 ? ESPANK_SUCCESS : ESPANK_ERROR;
}

spank_err_t spank_job_control_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
    (void)spank, (void)name, (void)value, (void)overwrite;
    return ESPANK_ERROR;
}

void slurm_error(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
}

int main(int argc, char **argv)
{
    if (slurm_spank_task_init_privileged(NULL, argc - 1, argv + 1) != 0)
        return 1;
    for (char **variable = environ; *variable != NULL; variable++)
        fwrite(*variable, 1, strlen(*variable) + 1, stdout);
    return 0;
}
