/* SPDX-License-Identifier: Apache-2.0 */
/* The exit statuses of `gsaas run` besides those of the command; `gsaas run --help` lists them. */
#ifndef GSAAS_STATUS_H
#define GSAAS_STATUS_H

enum {
    STATUS_BUSY = 3,
    STATUS_IMPOSSIBLE = 4,
    STATUS_FAILED = 125,
    STATUS_NOT_EXECUTABLE = 126,
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNALLED = 128, /* plus the number of the signal that ended the command */
    STATUS_INTERRUPTED = 130,
};

#endif
