/* SPDX-License-Identifier: Apache-2.0 */
/* The command `gsaas`: `gsaas run` is in gsaas-run.so beside this program, everything else in gsaas-cli.
 *
 * The shared object is loaded here instead of being linked, because it needs libraries: where one is missing, gsaas-cli
 * serves `gsaas run` as well, and no other command waits for them.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "python.h"
#include "run.h"

#define OBJECT "gsaas-run.so"

/* Return the function in the shared object, or NULL. */
static run_function *load(void)
{
    char path[PATH_MAX + sizeof OBJECT];
    if (!beside_program(path, sizeof path, OBJECT))
        return NULL;
    void *object = dlopen(path, RTLD_LAZY);
    run_function *function = NULL;
    if (object)
        *(void **)&function = dlsym(object, RUN_FUNCTION);
    return function;
}

/* Open a file that fails at every use in place of each standard file that the caller has closed: otherwise the
 * connection to the API would take its number, and messages would be sent there. The command finds it closed again. */
static void open_closed_files(void)
{
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        if (fcntl(file, F_GETFD) == -1)
            open("/dev/null", (file == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
}

int main(int argc, char **argv)
{
    open_closed_files();
    run_function *run = argc > 1 && strcmp(argv[1], "run") == 0 ? load() : NULL;
    return run ? run(argc, argv) : python_exec(argv);
}
