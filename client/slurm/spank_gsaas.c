// SPDX-License-Identifier: Apache-2.0
// A SPANK plug-in: gives Slurm's sbatch, salloc and srun the options --cgpus, --poolmem, --cgpu-mode and --cgpu-kind.
//
// It claims nothing and talks to no network. It does three things:
//
// 1. Where a job is submitted, it checks the options and puts them into the job control environment. Slurm hands that to
//    the prologs as SPANK_GSAAS_CGPUS, SPANK_GSAAS_POOLMEM, SPANK_GSAAS_MODE and SPANK_GSAAS_KIND. Users can forge it, so
//    the prologs check everything again.
// 2. On a node, it adds the variables to the environment of each task that the node's prolog has left for the job, in
//    FOLDER/JOB.UID.NODE. Only root can read that file. LD_LIBRARY_PATH is extended and not replaced. UID is the job's
//    user: ids begin again when a controller loses its state, and no job may find what another user's has left.
// 3. A task of a job that asked for cGPUs does not start without them.
//
// Arguments in plugstack.conf: folder=FOLDER (default: /run/gsaas/slurm).

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(gsaas, 1);

enum { COUNT, MEMORY, MODE, KIND, OPTIONS };
enum { MAX_ENVIRONMENT = 1024 * 1024 };

static const char *const NAMES[OPTIONS] = {"cgpus", "poolmem", "cgpu-mode", "cgpu-kind"};
static const char *const VARIABLES[OPTIONS] = {"GSAAS_CGPUS", "GSAAS_POOLMEM", "GSAAS_MODE", "GSAAS_KIND"};
static const char FOLDER[] = "folder=";
static const char SEARCH_PATH[] = "LD_LIBRARY_PATH";

static char *values[OPTIONS];

// Return whether *text* is a whole number of at least 1.
static int is_number(const char *text)
{
    return strlen(text) <= 9 && text[strspn(text, "0123456789")] == '\0' && text[strspn(text, "0")] != '\0';
}

// Return whether *text* is such a number, or one with a unit that the prologs know: 2G, 2Gi, 2GiB.
static int is_memory(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    const char *unit = text + digits;
    if (*unit == '\0')
        return is_number(text);
    return digits <= 9 && digits > strspn(text, "0") && strchr("MGTgt", *unit) != NULL &&
           (strcmp(unit + 1, "") == 0 || strcmp(unit + 1, "i") == 0 || strcmp(unit + 1, "iB") == 0);
}

static int is_one_of(const char *text, const char *first, const char *second)
{
    return strcmp(text, first) == 0 || strcmp(text, second) == 0;
}

// Slurm calls this for each option that is given; `remote` is set on nodes, where the options were checked before.
static int keep(int option, const char *value, int remote)
{
    if (!remote && option == MODE && !is_one_of(value, "shared", "exclusive")) {
        slurm_error("gsaas: --%s is shared or exclusive, not '%s'", NAMES[option], value);
        return -1;
    }
    if (!remote && option == KIND && !is_one_of(value, "cuda", "cpu")) {
        slurm_error("gsaas: --%s is cuda or cpu, not '%s'", NAMES[option], value);
        return -1;
    }
    if (!remote && option == MEMORY && !is_memory(value)) {
        slurm_error("gsaas: --%s is an amount of memory such as 2G, 2048M or 2048 (MiB), not '%s'", NAMES[option],
                    value);
        return -1;
    }
    if (!remote && option == COUNT && !is_number(value)) {
        slurm_error("gsaas: --%s needs a whole number of at least 1, not '%s'", NAMES[option], value);
        return -1;
    }
    free(values[option]);
    values[option] = strdup(value);
    return values[option] == NULL ? -1 : 0;
}

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    static const char *const usage[OPTIONS] = {
        "number of cGPUs of GSaaS on each node of the job",
        "GPU memory of each cGPU, such as 2G, or 2048 for MiB: a part of a GPU",
        "exclusive: each cGPU is a whole GPU; shared: a part of its memory (default: shared with --poolmem)",
        "cuda: GPUs of NVIDIA; cpu: CPU devices (default: what the cloud's operator has chosen)",
    };
    static const char *const placeholder[OPTIONS] = {"N", "SIZE", "MODE", "KIND"};
    (void)argc, (void)argv;
    if (spank_context() == S_CTX_SLURMD || spank_context() == S_CTX_JOB_SCRIPT)
        return 0;
    for (int option = 0; option < OPTIONS; option++) {
        struct spank_option registered = {
            .name = (char *)NAMES[option],
            .arginfo = (char *)placeholder[option],
            .usage = (char *)usage[option],
            .has_arg = 1,
            .val = option,
            .cb = keep,
        };
        if (spank_option_register(spank, &registered) != ESPANK_SUCCESS) {
            slurm_error("gsaas: another plug-in has an option --%s", NAMES[option]);
            return -1;
        }
    }
    return 0;
}

// Return why the options contradict each other, or NULL.
static const char *contradiction(void)
{
    // Without a mode, memory means shared.
    int shared = values[MODE] != NULL && strcmp(values[MODE], "shared") == 0;
    if (values[COUNT] == NULL)
        return values[MEMORY] || values[MODE] || values[KIND]
                   ? "--poolmem, --cgpu-mode and --cgpu-kind are valid only with --cgpus"
                   : NULL;
    if (shared && values[MEMORY] == NULL)
        return "--poolmem is needed with --cgpu-mode=shared: the GPU memory of each cGPU, such as 2G";
    if (values[MODE] != NULL && !shared && values[MEMORY] != NULL)
        return "--poolmem is not valid with --cgpu-mode=exclusive: an exclusive cGPU has all memory of its GPU";
    return NULL;
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
    (void)argc, (void)argv;
    if (spank_context() != S_CTX_LOCAL && spank_context() != S_CTX_ALLOCATOR)
        return 0;
    const char *mistake = contradiction();
    if (mistake != NULL) {
        slurm_error("gsaas: %s", mistake);
        return -1;
    }
    for (int option = 0; option < OPTIONS; option++)
        if (values[option] != NULL && values[COUNT] != NULL &&
            spank_job_control_setenv(spank, VARIABLES[option], values[option], 1) != ESPANK_SUCCESS) {
            slurm_error("gsaas: --%s cannot be passed to the job", NAMES[option]);
            return -1;
        }
    return 0;
}

// Set where libraries are looked for to *ours*, before what the job has there, unless that contains it. Return 0, or -1.
static int extend_search_path(spank_t spank, const char *ours)
{
    size_t size = strlen(ours) + MAX_ENVIRONMENT;
    char *list = malloc(size), *part = malloc(size);  // both with a colon before and after, to compare whole folders
    int status = -1;
    if (list != NULL && part != NULL) {
        int begin = snprintf(list, size, ":%s:", ours);
        spank_err_t found = spank_getenv(spank, SEARCH_PATH, list + begin, (int)(size - (size_t)begin - 1));
        if (found == ESPANK_ENV_NOEXIST || (found == ESPANK_SUCCESS && list[begin] == '\0'))
            status = spank_setenv(spank, SEARCH_PATH, ours, 1) == ESPANK_SUCCESS ? 0 : -1;
        else if (found == ESPANK_SUCCESS) {
            memcpy(part, list, (size_t)begin);
            part[begin] = '\0';
            strcat(list, ":");
            if (strstr(list + begin - 1, part) != NULL)
                status = 0;
            else {
                list[strlen(list) - 1] = '\0';
                status = spank_setenv(spank, SEARCH_PATH, list + 1, 1) == ESPANK_SUCCESS ? 0 : -1;
            }
        }
    }
    free(list);
    free(part);
    return status;
}

// Add the variables in *file*, which are written as NAME=VALUE and each ended by a zero byte. Return 0, or -1.
static int add_variables(spank_t spank, FILE *file)
{
    char *text = malloc(MAX_ENVIRONMENT + 1);
    if (text == NULL)
        return -1;
    size_t length = fread(text, 1, MAX_ENVIRONMENT, file);
    int status = ferror(file) ? -1 : 0;
    text[length] = '\0';
    for (char *line = text; status == 0 && line < text + length; ) {
        char *next = line + strlen(line) + 1, *value = strchr(line, '=');
        if (value == NULL)
            status = -1;
        else {
            *value++ = '\0';
            if (strcmp(line, SEARCH_PATH) == 0)
                status = extend_search_path(spank, value);
            else if (spank_setenv(spank, line, value, 1) != ESPANK_SUCCESS)
                status = -1;
        }
        line = next;
    }
    free(text);
    return status;
}

// On a node, as root, in the process that becomes the task. A failure ends the task, not the node.
int slurm_spank_task_init_privileged(spank_t spank, int argc, char **argv)
{
    const char *folder = "/run/gsaas/slurm";
    const char *node = getenv("SLURMD_NODENAME");  // of slurmstepd, which has it from slurmd, not of the job
    char path[PATH_MAX];
    uint32_t job;
    uid_t user;
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], FOLDER, strlen(FOLDER)) == 0)
            folder = argv[i] + strlen(FOLDER);
    if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_UID, &user) != ESPANK_SUCCESS || node == NULL) {
        slurm_error("gsaas: slurmstepd does not say which job this is, of whom, or on which node");
        return -1;
    }
    snprintf(path, sizeof path, "%s/%" PRIu32 ".%" PRIuMAX ".%s", folder, job, (uintmax_t)user, node);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        if (errno == ENOENT && values[COUNT] == NULL)
            return 0;
        slurm_error("gsaas: this job has no cGPUs on %s: %s cannot be read: %m; the system log of that node says why",
                    node, path);
        return -1;
    }
    int status = add_variables(spank, file);
    fclose(file);
    if (status != 0)
        slurm_error("gsaas: the cGPUs of this job cannot be used: %s is not complete", path);
    return status;
}
