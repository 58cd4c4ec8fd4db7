"""`gsaas run`: take cGPUs, run a command with them, give them back whatever happens to the command.

The program `gsaas` does this by itself where it can (launcher/main.c, whose rules are these); here it is done for
credentials and addresses that take Python: Keystone's, and https.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from gsaas.cli import cgpus, leases, queue
from gsaas.cli.alloc import consumer, show_grant
from gsaas.cli.exit_statuses import RUN_FAILED
from gsaas.cli.parser import UsageError
from gsaas.client import ApiError, Client, ClientError
from gsaas.grants import grant_client

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEEPALIVE = 60
"""Seconds of silence after which GSaaS takes the launcher for dead."""
NOT_EXECUTABLE, NOT_FOUND, SIGNALLED = 126, 127, 128
SENT_ON = {
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM),
}
PR_SET_PDEATHSIG = 1


def run(client: Client, args: SimpleNamespace) -> int:
    """Run the command and return its exit status, or one of the launcher's own."""
    if not args.remainder:
        raise UsageError("a command is needed: gsaas run -ncgpus=1 -- COMMAND [ARGUMENT ...]")
    asked: dict[str, Any] = {
        "cgpus": cgpus.from_options(args),
        "server": None,
        "consumer": consumer(args),
        "keepalive": KEEPALIVE,
    }
    if args.name:
        asked["name"] = args.name
    with _interrupted_by(signal.SIGTERM, signal.SIGHUP):
        lease, environment = _take(client, args, asked)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*SENT_ON, signal.SIGCHLD})
    try:
        return _attend(client, lease["id"], _start(args.remainder, environment, before))
    except OSError as error:
        _say(f"{args.remainder[0]} cannot be run: {error.strerror}")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    finally:
        _give_back(client, lease["id"])


def _take(
    client: Client, args: SimpleNamespace, asked: dict[str, Any]
) -> tuple[leases.Lease, dict[str, str]]:
    """Return the lease, once it can be used, and its environment."""
    answer = queue.ask(client, args, asked)
    lease, environment = answer["lease"], answer.get("environment")
    try:
        if lease["status"] != "ACTIVE":
            lease = leases.follow(client, lease, lambda status: status != "CLAIMED")
        if lease["status"] != "ACTIVE":
            fault = lease.get("fault") or {"message": f"it is {lease['status']}"}
            raise ClientError(f"lease {lease['id']} cannot be used: {fault['message']}")
        if environment is None:
            environment = leases.environment(client, lease, "json")["environment"]
        if args.on is None and grant_client.GATE in environment:
            show_grant(environment)
            environment = leases.environment(client, lease, "json")["environment"]
    except BaseException:
        _give_back(client, lease["id"])
        raise
    return lease, environment


def _start(
    command: list[str], environment: dict[str, str], mask: set[signal.Signals]
) -> subprocess.Popen[bytes]:
    libc, parent = ctypes.CDLL(None), os.getpid()

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(RUN_FAILED)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    sys.stdout.flush()
    return subprocess.Popen(command, env={**os.environ, **environment}, preexec_fn=prepare)


def _attend(client: Client, lease_id: str, command: subprocess.Popen[bytes]) -> int:
    """Wait for the command, keep the lease alive, send signals on; return how the command ended."""
    kept = True
    while command.poll() is None:
        happened = signal.sigtimedwait({*SENT_ON, signal.SIGCHLD}, KEEPALIVE / 3)
        if happened is None:
            if kept and not (kept := _keep(client, lease_id)):
                _say(f"the lease {lease_id} was ended by others: ending the command")
                command.terminate()
        elif happened.si_signo != signal.SIGCHLD and happened.si_code <= 0:
            # Sent by a process to this one alone; what a terminal sends, the command has got itself.
            command.send_signal(happened.si_signo)
    status = command.returncode
    return SIGNALLED - status if status < 0 else status


def _keep(client: Client, lease_id: str) -> bool:
    """Say that we are here; False if the lease is none any more. An API that is away comes back."""
    try:
        answer = client.request("POST", f"/v1/leases/{lease_id}/keepalive")
    except ApiError as error:
        return error.status != 404
    except ClientError:
        return True
    return answer["lease"]["status"] not in ("RELEASING", "ERROR")


def _give_back(client: Client, lease_id: str) -> None:
    try:
        client.request("DELETE", f"/v1/leases/{lease_id}")
    except ClientError as error:
        if not (isinstance(error, ApiError) and error.status == 404):
            _say(
                f"lease {lease_id} could not be given back; it ends by itself within {KEEPALIVE} s"
            )


@contextmanager
def _interrupted_by(*signals: signal.Signals) -> Iterator[None]:
    """Have these signals end the block as Ctrl-C does."""

    def interrupt(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(f"interrupted by {signal.Signals(number).name}")

    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(sentence: str) -> None:
    print(f"gsaas: {sentence}", file=sys.stderr)
