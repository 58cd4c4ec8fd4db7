/* SPDX-License-Identifier: Apache-2.0 */
#include "python.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "status.h"

#define PROGRAM "gsaas-cli"

extern char **environ;

bool beside_program(char *path, size_t size, const char *name)
{
    ssize_t length = readlink("/proc/self/exe", path, size);
    char *slash = length > 0 && (size_t)length < size ? memrchr(path, '/', (size_t)length) : NULL;
    if (!slash || (size_t)(slash + 1 - path) + strlen(name) >= size)
        return false;
    strcpy(slash + 1, name);
    return true;
}

/* Write the path of gsaas-cli, or its name if it is not beside this program. */
static void find_program(char path[PATH_MAX])
{
    if (!beside_program(path, PATH_MAX, PROGRAM) || access(path, X_OK) != 0)
        strcpy(path, PROGRAM);
}

int python_exec(char **argv)
{
    char path[PATH_MAX];
    find_program(path);
    execvp(path, argv);
    fprintf(stderr, "gsaas: %s, which is installed beside this program, cannot be run: %s\n", PROGRAM, strerror(errno));
    return STATUS_FAILED;
}

static bool wait_until_ended(pid_t child, int seconds)
{
    int status = -1;
    int descriptor = (int)syscall(SYS_pidfd_open, child, 0);
    struct pollfd polled = {descriptor, POLLIN, 0};
    if (descriptor < 0 || poll(&polled, 1, seconds * 1000) <= 0)
        kill(child, SIGKILL);
    if (descriptor >= 0)
        close(descriptor);
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool python_run(char **words, int seconds)
{
    char path[PATH_MAX];
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t child;
    find_program(path);
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_init(&actions);
    for (int file = 0; file < 3; file++)
        posix_spawn_file_actions_addopen(&actions, file, "/dev/null", O_RDWR, 0);
    int error = posix_spawnp(&child, path, &actions, &attributes, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    return error == 0 && wait_until_ended(child, seconds);
}
