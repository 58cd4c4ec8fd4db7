/* SPDX-License-Identifier: Apache-2.0 */
/* batch COUNT COMMAND [ARGUMENT ...]: start so many copies of a command at once, wait for all of them, and print
 * {"seconds": from the first start to the last end, "failed": how many did not end with status 0}. */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[1]) : 0, started = 0, failed = 0;
    posix_spawn_file_actions_t quiet;
    posix_spawn_file_actions_init(&quiet);
    for (int file = 0; file < 3; file++)
        posix_spawn_file_actions_addopen(&quiet, file, "/dev/null", O_RDWR, 0);
    double begun = now();
    for (int i = 0; i < count; i++) {
        pid_t child;
        if (posix_spawnp(&child, argv[2], &quiet, NULL, argv + 2, environ) == 0)
            started++;
        else
            failed++;
    }
    while (started-- > 0) {
        int status;
        wait(&status);
        failed += status != 0;
    }
    printf("{\"seconds\": %.6f, \"failed\": %d}\n", now() - begun, failed);
    return count == 0;
}
