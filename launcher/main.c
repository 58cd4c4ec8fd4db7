/* `gsaas`: the program that people type.
 *
 * It does one thing itself, and that quickly: `gsaas run`, where every millisecond until the command begins is waited
 * for. Everything else, and whatever it does not plainly understand or cannot do (https, Keystone, wrong words), it
 * leaves to `gsaas-cli` beside it, which is the same program in Python. gsaas/cli/run.py does what this file does.
 *
 * 1. A lease that was taken is given back on every way out of here. Who kills this program with SIGKILL kills the
 *    command with it, and GSaaS ends the lease when nobody has kept it alive for a while.
 * 2. Signals are read, never handled: they are blocked from the first line to the last. What somebody sends to this
 *    program alone is sent on to the command; what a terminal sends goes to both anyway.
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

static const int SENT_ON[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};

static int in_python(char **argv)
{
    char path[PATH_MAX + sizeof "gsaas-cli"];
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    if (length > 0) {
        path[length] = '\0';
        strcpy(strrchr(path, '/') + 1, "gsaas-cli");
        execv(path, argv);
    }
    execvp("gsaas-cli", argv);
    fprintf(stderr, "gsaas: gsaas-cli, which belongs beside this program, cannot be run: %s\n", strerror(errno));
    return STATUS_FAILED;
}

/* Block what is sent on, and SIGCHLD; return a descriptor that tells of them. */
static int read_signals(sigset_t *before)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    for (size_t i = 0; i < sizeof SENT_ON / sizeof *SENT_ON; i++)
        sigaddset(&signals, SENT_ON[i]);
    signal(SIGCHLD, SIG_DFL); /* or a caller that ignores it keeps us from the exit status */
    sigprocmask(SIG_BLOCK, &signals, before);
    return signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Ours, with the lease's in the place of those of the same name. */
static char **environment_with(const struct text *added)
{
    size_t ours = 0, theirs = 0, kept = 0;
    const char *end = added->bytes + added->length;
    while (environ[ours])
        ours++;
    for (const char *at = added->bytes; at < end; at += strlen(at) + 1)
        theirs++;
    char **all = calloc(ours + theirs + 1, sizeof *all);
    if (!all)
        return NULL;
    for (char *at = added->bytes; at < end; at += strlen(at) + 1)
        all[kept++] = at;
    for (size_t i = 0; i < ours; i++) {
        size_t name = strcspn(environ[i], "=") + 1, same = 0;
        while (same < theirs && strncmp(environ[i], all[same], name) != 0)
            same++;
        if (same == theirs)
            all[kept++] = environ[i];
    }
    return all;
}

/* Start the command; 0 if it cannot be, with errno saying why. */
static pid_t start(char **command, char **environment, const sigset_t *mask)
{
    pid_t parent = getpid();
    volatile int failed = 0;
    pid_t child = vfork(); /* the parent goes on when the command runs, so it sees what went wrong */
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
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

/* Wait for the command, keep the lease alive, send signals on; return how the command ended. */
static int attend(pid_t child, struct lease *lease)
{
    struct pollfd awaited = {lease->interrupt, POLLIN, 0};
    struct signalfd_siginfo signal;
    bool kept = true;
    for (;;) {
        int status;
        int ready = poll(&awaited, 1, KEEPALIVE / 3 * 1000);
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFSIGNALED(status) ? STATUS_SIGNALLED + WTERMSIG(status) : WEXITSTATUS(status);
        if (ready == 0 && kept && !(kept = lease_keep(lease))) {
            fprintf(stderr, "gsaas: the lease %s was ended by others: ending the command\n", lease->id);
            kill(child, SIGTERM);
        }
        while (read(lease->interrupt, &signal, sizeof signal) == sizeof signal)
            if (signal.ssi_signo != SIGCHLD && signal.ssi_code <= 0) /* by a process, not by the kernel's terminal */
                kill(child, (int)signal.ssi_signo);
    }
}

static bool interrupted(int signals)
{
    struct signalfd_siginfo signal;
    return read(signals, &signal, sizeof signal) == sizeof signal;
}

static int run(struct server *server, const struct request *request)
{
    sigset_t mask;
    struct lease lease = {.server = server, .interrupt = read_signals(&mask)};
    int result = lease_take(&lease, request);
    bool late = result == 0 && interrupted(lease.interrupt);
    if (late)
        lease_give_back(&lease);
    if (late || result == -1) {
        fprintf(stderr, "gsaas: interrupted before the command began; what it was to use is given back\n");
        return STATUS_INTERRUPTED;
    }
    if (result != 0)
        return result;
    char **environment = environment_with(&lease.environment);
    pid_t child = environment ? start(request->command, environment, &mask) : 0;
    if (child) {
        result = attend(child, &lease);
    } else {
        result = errno == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_EXECUTABLE;
        fprintf(stderr, "gsaas: %s cannot be run: %s\n", request->command[0], strerror(errno));
    }
    lease_give_back(&lease);
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
        return in_python(argv);
    int status = run(&server, &request);
    text_free(&request.body);
    return status;
}
