# SPDX-License-Identifier: Apache-2.0
"""The bed as a whole: up, status, down, wipe."""

from __future__ import annotations

import contextlib
import fcntl
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.openstack.bed import (
    booted,
    commands,
    database,
    files,
    fitness,
    gsaas,
    hypervisors,
    loan,
    machines,
    messages,
    ownership,
    processes,
    remains,
    services,
    settings,
    switch,
    work,
)
from tests.openstack.bed.errors import BedError

COMPLETE = settings.RUN / "complete"
"""Holds, while the whole bed is up, what it was made from."""
LOCK = settings.DIR / "lock"
INFRASTRUCTURE = (database.DAEMON, messages.DAEMON, switch.DATABASE, switch.SWITCH)

Say = Callable[[str], None]


def up(say: Say, borrower: int | None = None) -> None:
    """Make the bed complete; `BedError` says what did not work.

    If nothing of it runs, or its borrower is gone, it is lent to the process *borrower*.
    """
    if lacking := fitness.lacks():
        raise BedError(f"the cloud needs {lacking}")
    with _alone(say):
        if borrower is None:
            loan.keep()
        elif loan.is_of(borrower) or status()["state"] == "down":
            loan.lend(borrower)
        if is_up():
            say("the cloud is up already")
            return
        _raise_file_limit()
        for directory in (settings.TMP, settings.LOG, settings.STATE, settings.BIN, settings.CACHE):
            ownership.make(directory)
        if settings.VENV.exists():  # programs of it run as root
            ownership.expect_ours(settings.VENV / "bin")
        COMPLETE.unlink(missing_ok=True)
        remains.remember()
        booted.remove()
        began = time.monotonic()

        def report(name: str, took: float) -> None:
            say(f"{time.monotonic() - began:6.1f} s  {name} ({took:.1f} s)")

        work.bring_up(services.units(), report)
        files.write(COMPLETE, _made_from())
        say(f"{time.monotonic() - began:6.1f} s  the cloud is up")


def is_up() -> bool:
    """Whether `up` came to its end with this very bed, and every daemon of it still runs."""
    return (
        COMPLETE.exists()
        and COMPLETE.read_text() == _made_from()
        and all(processes.running(daemon.name) for daemon in services.daemons())
    )


def status() -> dict[str, Any]:
    """What runs: `state` is up, down, or partly up; `daemons` lists each with its pid, or None."""
    rows = []
    for daemon in services.daemons():
        record = processes.running(daemon.name)
        rows.append(
            {
                "name": daemon.name,
                "pid": record.pid if record else None,
                "seconds": round(time.time() - record.since) if record else None,
                "ports": list(daemon.ports),
                "log": str(daemon.log),
            }
        )
    alive = any(row["pid"] for row in rows)
    state = "up" if is_up() else "partly up" if alive else "down"
    return {"state": state, "directory": str(settings.DIR), "daemons": rows}


def down(say: Say, borrower: int | None = None) -> None:
    """End what the bed started, and take away what that leaves in the kernel. State stays.

    With a *borrower*, only if the bed was lent to it, or to a process that is gone.
    """
    if borrower is not None and not loan.is_of(borrower):
        return
    with _alone(say):
        _down(say)


def wipe(say: Say, everything: bool = False) -> None:
    """`down`, and forget all state. The installation and the guest image stay, or go as well."""
    kept = {LOCK} if everything else {LOCK, settings.CACHE}
    with _alone(say):
        _down(say)
        for path in set(settings.DIR.iterdir()) - kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        say(f"wiped: {settings.DIR}")


def _down(say: Say) -> None:
    began = time.monotonic()
    COMPLETE.unlink(missing_ok=True)
    booted.remove()
    _stop_guests()
    _end_all_but(INFRASTRUCTURE)  # which the others wait for when they end
    if processes.running(switch.SWITCH.name):
        switch.ask("--if-exists", "del-br", switch.INTEGRATION_BRIDGE)
    _end_all_but(())
    gsaas.remove()
    machines.remove()
    remains.remove()
    processes.forget()
    shutil.rmtree(settings.TMP, ignore_errors=True)
    loan.keep()
    say(f"{time.monotonic() - began:6.1f} s  the cloud is down")


def _stop_guests() -> None:
    """Pull the plug of every guest."""
    if processes.running(hypervisors.LIBVIRTD.name) is None:
        return
    virsh = ("virsh", "-c", hypervisors.LIBVIRT_URL)
    for name in commands.run(*virsh, "list", "--name").split():
        commands.run(*virsh, "destroy", name)


def _end_all_but(kept: Sequence[processes.Daemon]) -> None:
    """End every process of the bed that does not belong to the daemons *kept*."""
    spared = {record.pid for each in kept if (record := processes.running(each.name))}
    spared.update(processes.descendants(spared))
    recorded = {record.pid for name in processes.recorded() if (record := processes.running(name))}
    ours = {
        *recorded,
        *processes.descendants(recorded),
        *processes.marked(),
        *processes.mentioning(settings.STATE / f"nova-{settings.REAL_HOST}" / "instances"),
    }
    processes.end(ours - spared)


def _made_from() -> str:
    """A fingerprint of everything that decides what the bed is like."""
    sources = [path for path in Path(__file__).parent.rglob("*") if path.suffix != ".pyc"]
    return files.digest(sorted(path for path in [*sources, *gsaas.code()] if path.is_file()))


@contextlib.contextmanager
def _alone(say: Say) -> Iterator[None]:
    """Hold the bed's lock: one `up` or `down` at a time, others wait for it."""
    if settings.GIVEN != settings.DIR:
        ownership.expect_ours(settings.GIVEN)  # the link, too
    ownership.make(settings.DIR)
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another command is at work on the cloud; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _raise_file_limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
