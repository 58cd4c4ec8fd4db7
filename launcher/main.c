/* SPDX-License-Identifier: Apache-2.0 */
/* The command `gsaas`.
 *
 * It implements `gsaas run`, where users wait for every millisecond until the command begins. For all other commands,
 * and for lines or credentials that it does not support (https, Keystone, invalid options), it executes `gsaas-cli`,
 * the same program in Python, which is installed beside it. client/gsaasclient/cli/run.py follows the same rules as this file.
 *
 * 1. A lease is released on every path that ends this program. If this program is killed with SIGKILL, the kernel kills
 *    the command as well, and GSaaS ends the lease because it is no longer kept alive.
 * 2. Signals are read from a descriptor and have no handlers: they are blocked all the time. A signal sent to this
 *    program alone is forwarded to the command; a signal from the terminal reaches both.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "credentials.h"
#include "lease.h"
#include "request.h"
#include "status.h"

extern char **environ;

static const int FORWARDED_SIGNALS[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};

/* Replace this program by gsaas-cli; return the exit status if that fails. */
static int exec_gsaas_cli(char **argv)
{
    char path[PATH_MAX + sizeof "gsaas-cli"];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length > 0) {
        path[length] = '\0';
        strcpy(strrchr(path, '/') + 1, "gsaas-cli");
        execv(path, argv);
    }
    execvp("gsaas-cli", argv);
    fprintf(stderr, "gsaas: gsaas-cli, which is installed beside this program, cannot be run: %s\n", strerror(errno));
    return STATUS_FAILED;
}

/* Block the signals to forward, and SIGCHLD. Return a descriptor from which they are read; *mask* is set to the mask
 * before. */
static int block_signals(sigset_t *mask)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (size_t i = 0; i < sizeof FORWARDED_SIGNALS / sizeof *FORWARDED_SIGNALS; i++)
        sigaddset(&signals, FORWARDED_SIGNALS[i]);
    signal(SIGCHLD, SIG_DFL); /* if the caller ignores it, waitpid returns no exit status */
    sigprocmask(SIG_BLOCK, &signals, mask);
    return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Return this program's environment, with the variables in *added* in place of those of the same name; NULL if there is
 * no memory. */
static char **merge_environment(const struct text *added)
{
    size_t own_count = 0, added_count = 0, count = 0;
    const char *end = added->bytes + added->length;
    while (environ[own_count])
        own_count++;
    for (const char *at = added->bytes; at < end; at += strlen(at) + 1)
        added_count++;
    char **merged = calloc(own_count + added_count + 1, sizeof *merged);
    if (!merged)
        return NULL;
    for (char *at = added->bytes; at < end; at += strlen(at) + 1)
        merged[count++] = at;
    for (size_t i = 0; i < own_count; i++) {
        size_t name_length = strcspn(environ[i], "=") + 1, other = 0;
        while (other < added_count && strncmp(environ[i], merged[other], name_length) != 0)
            other++;
        if (other == added_count)
            merged[count++] = environ[i];
    }
    return merged;
}

/* Start the command and return its process id; 0 if it cannot be started, with the reason in errno. */
static pid_t start(char **command, char **environment, const sigset_t *mask)
{
    pid_t parent = getpid();
    volatile int failed = 0;
    pid_t child = vfork(); /* the parent continues after execvpe, and shares `failed` until then */
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) /* it died before the prctl, which then had no effect */
            _exit(STATUS_FAILED);
        sigprocmask(SIG_SETMASK, mask, NULL);
        execvpe(command[0], command, environment);
        failed = errno;
        _exit(STATUS_NOT_FOUND);
    }
    if (child > 0 && failed) {
        waitpid(child, NULL, 0);
        child = 0;
        errno = failed;
    }
    return child > 0 ? child : 0;
}

/* Wait for the command, meanwhile keep the lease alive and forward signals; return the exit status. */
static int supervise(pid_t child, struct lease *lease)
{
    struct pollfd polled = {lease->interrupt, POLLIN, 0};
    struct signalfd_siginfo signal;
    bool alive = true;
    for (;;) {
        int status;
        int ready = poll(&polled, 1, KEEPALIVE / 3 * 1000);
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFSIGNALED(status) ? STATUS_SIGNALLED + WTERMSIG(status) : WEXITSTATUS(status);
        if (ready == 0 && alive && !(alive = lease_keep_alive(lease))) {
            fprintf(stderr, "gsaas: the lease %s was ended by others: ending the command\n", lease->id);
            kill(child, SIGTERM);
        }
        while (read(lease->interrupt, &signal, sizeof signal) == sizeof signal)
            if (signal.ssi_signo != SIGCHLD && signal.ssi_code <= 0) /* not from a terminal */
                kill(child, (int)signal.ssi_signo);
    }
}

/* Whether a signal has arrived; it is consumed. */
static bool signal_arrived(int signals)
{
    struct signalfd_siginfo signal;
    return read(signals, &signal, sizeof signal) == sizeof signal;
}

/* Run the command with a lease; return the exit status. */
static int run(struct server *server, const struct request *request)
{
    sigset_t mask;
    struct lease lease = {.server = server, .interrupt = block_signals(&mask)};
    int result = lease_allocate(&lease, request);
    bool interrupted = result == 0 && signal_arrived(lease.interrupt);
    if (interrupted)
        lease_release(&lease);
    if (interrupted || result == -1) {
        fprintf(stderr, "gsaas: interrupted before the command began; its cGPUs are given back\n");
        return STATUS_INTERRUPTED;
    }
    if (result != 0)
        return result;
    char **environment = merge_environment(&lease.environment);
    pid_t child = environment ? start(request->command, environment, &mask) : 0;
    if (child) {
        result = supervise(child, &lease);
    } else {
        result = errno == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE;
        fprintf(stderr, "gsaas: %s cannot be run: %s\n", request->command[0], strerror(errno));
    }
    lease_release(&lease);
    free(environment);
    free(lease.id);
    text_free(&lease.environment);
    http_close(server);
    return result;
}

int main(int argc, char **argv)
{
    struct server server = {0};
    struct request request = {0};
    if (argc < 2 || strcmp(argv[1], "run") != 0 || !request_read(argv + 2, &request) || !credentials_read(&server))
        return exec_gsaas_cli(argv);
    int status = run(&server, &request);
    text_free(&request.body);
    return status;
}
