# SPDX-License-Identifier: Apache-2.0
"""`gsaas run`: claim cGPUs, run a command with them, and release them however the command ends.

The C program `gsaas` does this by itself where it can (launcher/main.c follows the same rules). This module serves what
needs Python: credentials of Keystone, and an API behind https.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Collection
from types import SimpleNamespace

from gsaasclient import Client, ClientError
from gsaasclient.cli import cgpus, keepalive, leases, queue
from gsaasclient.cli.alloc import consumer_from_options, usable_environment
from gsaasclient.cli.environments import merged
from gsaasclient.cli.exit_statuses import RUN_FAILED
from gsaasclient.cli.interrupts import as_keyboard_interrupt
from gsaasclient.cli.output import print_error
from gsaasclient.cli.parser import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NOT_EXECUTABLE, NOT_FOUND, SIGNALLED = 126, 127, 128
"""Exit statuses as shells use them; the signal's number is added to the last one."""
FORWARDED_SIGNALS = {
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
}
PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when its parent dies."""


def run(client: Client, args: SimpleNamespace) -> int:
    """Run the command and return its exit status, or one of this program's own."""
    if not args.remainder:
        raise UsageError("a command is needed: gsaas run -ncgpus=1 -- COMMAND [ARGUMENT ...]")
    request: dict[str, Any] = {
        "cgpus": cgpus.from_options(args),
        "server": None,
        "consumer": consumer_from_options(args),
        "keepalive": keepalive.SECONDS,
    }
    if args.name:
        request["name"] = args.name
    with as_keyboard_interrupt(signal.SIGTERM, signal.SIGHUP):
        lease, environment = _allocate(client, args, request)
    client.lend_terminal()
    # Blocked before the command starts: a signal in between is forwarded once it runs, and none is lost.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED_SIGNALS, signal.SIGCHLD})
    try:
        return _supervise(client, lease["id"], _start(args.remainder, environment, mask))
    except OSError as error:
        print_error(f"{args.remainder[0]} cannot be run: {error.strerror}")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    finally:
        keepalive.release(client, lease["id"])


def _allocate(
    client: Client, args: SimpleNamespace, request: dict[str, Any]
) -> tuple[leases.Lease, dict[str, str]]:
    """Return an ACTIVE lease and its environment. Raises `ClientError`; no lease is left then."""
    answer = queue.request_lease(client, args, request)
    lease = answer["lease"]
    try:
        if lease["status"] != "ACTIVE":
            lease = leases.wait_until(client, lease, lambda status: status != "CLAIMED")
        if lease["status"] != "ACTIVE":
            fault = lease.get("fault") or {"message": f"it is {lease['status']}"}
            raise ClientError(f"lease {lease['id']} cannot be used: {fault['message']}")
        environment = usable_environment(client, lease, answer.get("environment"), args.on)
    except BaseException:
        keepalive.release(client, lease["id"])
        raise
    return lease, environment


def _start(
    command: list[str],
    environment: dict[str, str],
    mask: Collection[int],
) -> subprocess.Popen[bytes]:
    """Start the command with this process's environment and *environment*, and with the signals of *mask* blocked."""
    libc, parent = ctypes.CDLL(None), os.getpid()

    def prepare() -> None:
        # If this process is killed, so is the command: otherwise it would use cGPUs that are not its own any more.
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # prctl does not see a parent that died before the call.
        if os.getppid() != parent:
            os._exit(RUN_FAILED)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    sys.stdout.flush()
    return subprocess.Popen(command, env=merged(os.environ, environment), preexec_fn=prepare)


def _supervise(client: Client, lease_id: str, command: subprocess.Popen[bytes]) -> int:
    """Wait for the command, meanwhile keep the lease alive and forward signals; return the exit status."""
    alive = True
    while command.poll() is None:
        received = signal.sigtimedwait({*FORWARDED_SIGNALS, signal.SIGCHLD}, keepalive.SECONDS / 3)
        if received is None:
            if alive and not (alive := keepalive.renew(client, lease_id)):
                print_error(f"lease {lease_id} has ended: ending the command")
                command.terminate()
        elif received.si_signo != signal.SIGCHLD and received.si_code <= 0:
            # A code of at most 0 means that a process sent it, to this process alone. What the kernel sends for a
            # terminal, the command has received itself.
            command.send_signal(received.si_signo)
    status = command.returncode
    return SIGNALLED - status if status < 0 else status
