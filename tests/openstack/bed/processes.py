# SPDX-License-Identifier: Apache-2.0
"""Daemons: start them, see them, end them.

1. A daemon is known by its record `run/NAME.json`: its pid and the moment that process began, so a
   pid that went to somebody else is never mistaken for it.
2. Its environment carries `MARK`, and so does everything it starts. Ending what is marked ends what
   the bed started, and nothing that merely looks like it.
3. The record also holds a fingerprint of the command and of the configuration it read. A daemon whose
   fingerprint has changed is started anew.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.openstack.bed import files, settings
from tests.openstack.bed.errors import BedError

MARK = "GSAAS_CLOUD_DAEMON_OF"
STOP_PATIENCE = 6
"""Seconds before an end is forced: nova-compute alone would take minutes to wait for its peers."""
TAIL = 25
POLL = 1.0
"""Seconds between two looks, many of which ask a service that is starting, too."""


@dataclass(frozen=True)
class Daemon:
    """A program that stays. It listens on *ports* and works once *ready* says so."""

    name: str
    command: tuple[str | Path, ...]
    ready: Callable[[], bool]
    reads: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[int, ...] = ()
    patience: float = 240
    """Seconds to wait for it; far more than it takes, as the machine may be busy."""

    @property
    def log(self) -> Path:
        return settings.LOG / f"{self.name}.log"

    def fingerprint(self) -> str:
        return files.digest(self.reads, self.command, sorted(self.environment.items()))


@dataclass(frozen=True)
class Record:
    """What was started under a name. *since* is wall-clock time, seconds."""

    pid: int
    began: int
    since: float
    fingerprint: str


def ensure(daemon: Daemon) -> bool:
    """Have *daemon* running and ready; return whether it had to be started."""
    record = running(daemon.name)
    if record is not None and record.fingerprint == daemon.fingerprint():
        _await(daemon, record)
        return False
    if record is not None:
        end([record.pid, *descendants([record.pid])])
    record = _start(daemon)
    _await(daemon, record)
    return True


def running(name: str) -> Record | None:
    """The record of the daemon *name* if its process still lives."""
    try:
        record = Record(**json.loads(_record_path(name).read_text()))
    except FileNotFoundError:
        return None
    return record if began_at(record.pid) == record.began else None


def recorded() -> list[str]:
    """The names of all daemons that were started and not stopped since."""
    return sorted(path.stem for path in settings.RUN.glob("*.json"))


def forget() -> None:
    """Remove the records of daemons that do not run."""
    for name in recorded():
        if running(name) is None:
            _record_path(name).unlink()


def log_says(name: str, words: str) -> Callable[[], bool]:
    """A readiness: the log of the daemon *name* holds *words*."""
    path = settings.LOG / f"{name}.log"
    return lambda: path.exists() and words in path.read_text(errors="replace")


def listens(port: int) -> bool:
    """Whether something accepts connections on the bed's address."""
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex((settings.ADDRESS, port)) == 0


def wait_until(condition: Callable[[], bool], patience: float, what: str) -> None:
    """Return when *condition* holds; `BedError` naming *what* after *patience* seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise BedError(f"{what}: not within {patience:.0f} s")
        time.sleep(POLL)


def marked() -> list[int]:
    """The pids of every process that the daemons of this bed started, and their own."""
    mark = f"{MARK}={settings.DIR}".encode()
    return [pid for pid in _pids() if mark in _read(pid, "environ").split(b"\0")]


def mentioning(path: Path) -> list[int]:
    """The pids of processes with a file below *path* among their arguments.

    For QEMU: libvirt gives it an environment of its own, without our mark.
    """
    return [pid for pid in _pids() if f"{path}/".encode() in _read(pid, "cmdline")]


def descendants(pids: Collection[int]) -> list[int]:
    """The pids of all children of *pids*, and of theirs."""
    parents = {pid: stat[1] for pid in _pids() if (stat := _stat(pid))}
    found: set[int] = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - set(pids))


def end(pids: Collection[int]) -> None:
    """Ask *pids* to end, insist after `STOP_PATIENCE` seconds, and wait until they are gone."""
    living = {pid: began_at(pid) for pid in pids}
    for number in (signal.SIGTERM, signal.SIGKILL):
        living = {pid: began for pid, began in living.items() if lives(pid, began)}
        for pid in living:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + STOP_PATIENCE
        while time.monotonic() < deadline and any(lives(*each) for each in living.items()):
            time.sleep(0.05)
    if left := [pid for pid, began in living.items() if lives(pid, began)]:
        raise BedError(f"processes {left} did not end, not even when killed")


def describe(pid: int) -> str:
    """The command line of *pid*."""
    return _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()


def _start(daemon: Daemon) -> Record:
    for port in daemon.ports:
        if listens(port):
            raise BedError(
                f"{daemon.name} needs {settings.ADDRESS}:{port}, where another process listens"
            )
    daemon.log.parent.mkdir(parents=True, exist_ok=True)
    if daemon.log.exists():
        daemon.log.replace(daemon.log.with_suffix(".log.1"))
    environment = settings.environment(**daemon.environment, **{MARK: str(settings.DIR)})
    fingerprint = daemon.fingerprint()
    since = time.time()
    with daemon.log.open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in daemon.command],
            env=environment,
            cwd=settings.STATE,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    record = Record(process.pid, began_at(process.pid) or 0, since, fingerprint)
    files.write(_record_path(daemon.name), json.dumps(vars(record)))
    return record


def _await(daemon: Daemon, record: Record) -> None:
    deadline = time.monotonic() + daemon.patience
    while not daemon.ready():
        dead = not lives(record.pid, record.began)
        if dead or time.monotonic() > deadline:
            said = daemon.log.read_text(errors="replace").splitlines()[-TAIL:]
            how = "ended" if dead else f"was not ready within {daemon.patience:.0f} s"
            raise BedError("\n".join([f"{daemon.name} {how}; {daemon.log} ends with:", *said]))
        time.sleep(POLL)


def _record_path(name: str) -> Path:
    return settings.RUN / f"{name}.json"


def lives(pid: int, began: int | None) -> bool:
    return began is not None and began_at(pid) == began


def began_at(pid: int) -> int | None:
    """When *pid* began, in ticks since boot; None if it has ended, waited for or not."""
    stat = _stat(pid)
    return None if stat is None or stat[0] in "ZX" else stat[2]


def _stat(pid: int) -> tuple[str, int, int] | None:
    """State, parent and beginning of *pid*, from proc(5)."""
    text = _read(pid, "stat").decode(errors="replace")
    if not text:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return fields[0], int(fields[1]), int(fields[19])


def _pids() -> list[int]:
    own = os.getpid()
    found = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in found if pid != own]


def _read(pid: int, name: str) -> bytes:
    """What /proc says of *pid*; empty if it has ended, or is none of root's business."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
