/* SPDX-License-Identifier: Apache-2.0 */
/* slurm_cycle COUNT: allocate one GPU through libslurm and give it back, so many times one after the other. Prints a
 * JSON list of the seconds that each took. */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1;
    slurm_init(NULL);
    printf("[");
    for (int i = 0; i < count; i++) {
        job_desc_msg_t wanted;
        slurm_init_job_desc_msg(&wanted);
        wanted.user_id = getuid();
        wanted.group_id = getgid();
        wanted.name = "cycle";
        wanted.work_dir = "/tmp";
        wanted.min_nodes = 1;
        wanted.num_tasks = 1;
        wanted.min_cpus = 1;
        wanted.tres_per_node = "gres:gpu:1";
        double begun = now();
        resource_allocation_response_msg_t *given = slurm_allocate_resources_blocking(&wanted, 60, NULL);
        if (!given || (slurm_complete_job(given->job_id, 0) && errno != ESLURM_ALREADY_DONE)) {
            fprintf(stderr, "slurm_cycle: %s\n", slurm_strerror(errno));
            return 1;
        }
        printf("%s%.6f", i ? ", " : "", now() - begun);
        slurm_free_resource_allocation_response_msg(given);
    }
    printf("]\n");
    return 0;
}
