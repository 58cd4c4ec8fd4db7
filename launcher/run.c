/* SPDX-License-Identifier: Apache-2.0 */
/* `gsaas run`, where users wait for every millisecond until the command begins. For lines and credentials
 * that it does not support, and when no token of Keystone is cached, it executes `gsaas-cli`, the same program in Python.
 * client/gsaasclient/cli/run.py follows the same rules as this file.
 *
 * 1. A lease is released on every path that ends this program. If this program is killed with SIGKILL, the kernel kills
 *    the command as well, and GSaaS ends the lease because it is no longer kept alive.
 * 2. Signals are read from a descriptor and have no handlers: they are blocked all the time. A signal sent to this
 *    program alone is forwarded to the command; a signal from the terminal reaches both. SIGPIPE is ignored, because a
 *    server may close a connection at any time; the command gets it back as it was.
 */
#include <errno.h>
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
#include "environment.h"
#include "lease.h"
#include "python.h"
#include "request.h"
#include "run.h"
#include "status.h"

static const int FORWARDED_SIGNALS[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};

/* What was done with signals before. */
struct signals {
    sigset_t mask;
    void (*broken_pipe)(int);
};

/* Block the signals to forward, and SIGCHLD. Return a descriptor from which they are read; *before* is set to what
 * restore_signals needs. */
static int block_signals(struct signals *before)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (size_t i = 0; i < sizeof FORWARDED_SIGNALS / sizeof *FORWARDED_SIGNALS; i++)
        sigaddset(&signals, FORWARDED_SIGNALS[i]);
    signal(SIGCHLD, SIG_DFL); /* if the caller ignores it, waitpid returns no exit status */
    before->broken_pipe = signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &signals, &before->mask);
    return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void restore_signals(const struct signals *before)
{
    signal(SIGPIPE, before->broken_pipe);
    sigprocmask(SIG_SETMASK, &before->mask, NULL);
}

/* Start the command and return its process id; 0 if it cannot be started, with the reason in errno. */
static pid_t start(char **command, char **environment, const struct signals *before)
{
    pid_t parent = getpid();
    volatile int failed = 0;
    pid_t child = vfork(); /* the parent continues after execvpe, and shares `failed` until then */
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) /* it died before the prctl, which then had no effect */
            _exit(STATUS_FAILED);
        restore_signals(before);
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
            fprintf(stderr, "gsaas: lease %s has ended: ending the command\n", lease->id);
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
static int run(struct api *api, const struct request *request, char **argv)
{
    struct signals before;
    struct lease lease = {.api = api, .interrupt = block_signals(&before)};
    int result = lease_allocate(&lease, request);
    if (result == 0 && signal_arrived(lease.interrupt)) {
        lease.hurried = true;
        result = lease_release(&lease) ? LEASE_INTERRUPTED : LEASE_MAY_STAY;
    }
    if (result == LEASE_INTERRUPTED) {
        fprintf(stderr, "gsaas: interrupted before the command began; its cGPUs are released\n");
        return STATUS_INTERRUPTED;
    }
    if (result == LEASE_MAY_STAY) {
        fprintf(stderr, "gsaas: interrupted before the command began; if it has cGPUs, they are released within %d s\n",
                KEEPALIVE);
        return STATUS_INTERRUPTED;
    }
    if (result == LEASE_LEFT) {
        restore_signals(&before);
        return python_exec(argv);
    }
    if (result != 0)
        return result;
    char **environment = environment_merge(&lease.environment);
    pid_t child = environment ? start(request->command, environment, &before) : 0;
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
    return result;
}

int gsaas_run(int argc, char **argv)
{
    struct api api = {0};
    struct request request = {0};
    if (argc < 2 || !request_read(argv + 2, &request) || !credentials_read(&api))
        return python_exec(argv);
    /* Without the destructors of the libraries, which have nothing to do. Standard error is not buffered. */
    _exit(run(&api, &request, argv));
}
