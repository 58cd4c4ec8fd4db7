# SPDX-License-Identifier: Apache-2.0
"""Where programs and daemons of a proof run: as units of systemd, as those of tenants do, or as plain processes.

A *job* is a daemon's command, or the CUDA program in its place, with the daemon's environment, limit and walls.
"""

from __future__ import annotations

import abc
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, ClassVar

from oslo_config import cfg

from gsaas.cloudinit.environment import SEARCH_PATH
from gsaas.gpu_host.daemons import health, memory_limit, unit
from gsaas.gpu_host.daemons.health import HealthCheckFailed
from gsaas.gpu_host.daemons.process_runner import kept_to_its_share
from gsaas.gpu_host.daemons.runner import CannotStart
from gsaas.objects.daemon import Daemon
from gsaas.prove import program
from gsaas.prove.verdicts import Ran
from gsaas.remoting.daemon import DaemonCommand, DaemonSettings

PYTHON = "/usr/bin/python3"
"""What runs the program in a unit, which sees nothing in /home and /root."""
TIMEOUT = 120.0
"""Seconds for one run of the program."""
GRACE = 10.0
"""Seconds for a command that was asked to end."""
TIMED_OUT = 124
"""The exit status of timeout(1) when it has ended its command."""
POLL = 0.02
LONGEST = 900.0
"""Seconds after which systemd ends a unit whose proof was killed before it could."""
PREFIX = "gsaas-prove-"
"""What the names of units begin with: those of daemons would be taken over, or ended, by a monitor that starts."""
HOST = "proof"
JOURNAL: Sequence[str] = ("journalctl",)
"""The command that reads the journal."""


class Unusable(Exception):
    """A job could not be started; the text says why."""


class Job(abc.ABC):
    """Something that runs on a GPU."""

    @abc.abstractmethod
    def lives(self) -> bool:
        """Return whether its first process lives."""

    @abc.abstractmethod
    def kill(self) -> None:
        """End all its processes now, and wait until they are gone."""

    @abc.abstractmethod
    def output(self) -> str:
        """Return what it has printed."""

    def ended_within(self, timeout: float) -> bool:
        """Wait until its first process has ended, and return whether it has."""
        return _wait(lambda: not self.lives(), timeout)

    def result(self, timeout: float = TIMEOUT) -> Ran:
        """Wait until the program has ended; return its result."""
        if not self.ended_within(timeout):
            self.kill()
            return Ran(None, f"it did not end within {timeout:g} s")
        return read(self.output())

    def await_output(self, text: str, timeout: float = TIMEOUT) -> bool:
        """Wait until it has printed *text*; return False if it ends first."""
        _wait(lambda: text in self.output() or not self.lives(), timeout)
        return text in self.output()


class Place(abc.ABC):
    """Starts jobs on this host, whose daemons *settings* describe."""

    cpu_limit: ClassVar[str]
    """What keeps one process of a daemon of a CPU device to its memory."""
    groups: ClassVar[bool]
    """Whether each job has a control group, whose memory is limited."""

    def __init__(self, settings: DaemonSettings, address: str) -> None:
        self.settings = settings
        self.address = address

    @abc.abstractmethod
    def start(self, daemon: Daemon, words: Sequence[str] | None) -> Job:
        """Start the program with these arguments, or the daemon itself for None; raises `Unusable`."""

    def daemon(self, gpu_uuid: str, port: int, memory_mb: int | None) -> Daemon:
        """Return a daemon for a lease that no other program knows."""
        lease = f"proof-{secrets.token_hex(4)}"
        return Daemon(gpu_uuid, port, memory_mb, lease, ports=self.settings.ports)

    def check(self, daemon: Daemon, job: Job, timeout: float) -> tuple[float, str | None]:
        """Wait until a daemon is healthy; return the seconds that took, and its version. Raises `Unusable`."""
        began = time.monotonic()
        check = health.CHECKS[self.settings.health]
        while True:
            try:
                version = check(self.address, daemon)
                return time.monotonic() - began, version
            except HealthCheckFailed as error:
                if not job.lives():
                    raise Unusable(f"the daemon ended: {job.output()[-300:].strip()}") from None
                if time.monotonic() - began > timeout:
                    raise Unusable(f"the daemon {error}, also after {timeout:g} s") from None
            time.sleep(POLL)

    def _command(self, daemon: Daemon, words: Sequence[str] | None, python: str) -> DaemonCommand:
        command = self.settings.command(daemon, HOST, self.address)
        if (missing := memory_limit.missing(command)) is not None:
            raise Unusable(f"a limit of {daemon.memory_mb} MiB would have no effect: {missing}")
        if words is None:
            return command
        return replace(command, argv=(python, "-c", source(), *words), folder="/")


class Processes(Place):
    """Jobs as plain processes, with *more* environment: for a host with the tests' fake driver."""

    cpu_limit = "RLIMIT_DATA"
    groups = False

    def __init__(self, settings: DaemonSettings, address: str, more: Mapping[str, str]) -> None:
        super().__init__(settings, address)
        self._more = dict(more)

    def start(self, daemon: Daemon, words: Sequence[str] | None) -> Job:
        command = self._command(daemon, words, sys.executable)
        limits = kept_to_its_share(command)
        argv = ["prlimit", *limits, *command.argv] if limits else command.argv
        return begin(argv, self._environment(command.environment), command.folder)

    def _environment(self, of_the_daemon: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a job; of both search paths of libraries, that of *more* comes first."""
        found = {"PATH": os.environ.get("PATH", os.defpath), **of_the_daemon, **self._more}
        paths = [each[SEARCH_PATH] for each in (self._more, of_the_daemon) if SEARCH_PATH in each]
        return {**found, SEARCH_PATH: ":".join(paths)} if paths else found


class Process(Job):
    """A process of this host in a session of its own, which prints to *printed*."""

    def __init__(self, process: subprocess.Popen[bytes], printed: IO[bytes]) -> None:
        self._process = process
        self._file = printed
        self._printed = b""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def lives(self) -> bool:
        return self._process.poll() is None

    def ask_to_end(self) -> None:
        """Send its first process SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        if self._file.closed:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self.output()
        self._file.close()

    def output(self) -> str:
        if not self._file.closed:
            # The process writes at the position of the file, which a usual read would move.
            size = os.fstat(self._file.fileno()).st_size - len(self._printed)
            self._printed += os.pread(self._file.fileno(), size, len(self._printed))
        return self._printed.decode(errors="replace")


def begin(argv: Sequence[str], environment: Mapping[str, str], folder: str = "/") -> Process:
    """Start a process with nothing but *environment*; raises `Unusable`.

    It prints to a temporary file: a pipe that nobody reads would stop it when it is full.
    """
    printed = tempfile.TemporaryFile()  # noqa: SIM115 - the job closes it
    try:
        process = subprocess.Popen(
            argv,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        printed.close()
        raise Unusable(f"{argv[0]} cannot be run: {error.strerror}") from None
    return Process(process, printed)


class Units(Place):
    """Jobs as transient units of systemd, with the walls of daemons; needs root."""

    cpu_limit = "LimitDATA"
    groups = True

    def __init__(self, conf: cfg.ConfigOpts, settings: DaemonSettings, address: str) -> None:
        super().__init__(settings, address)
        # Imported here: a host with a fake driver need not have what talks to systemd.
        from gsaas.gpu_host.daemons import supervision
        from gsaas.gpu_host.daemons.systemd import Systemd

        self.systemd = Systemd()
        self._confinement = supervision.confinement(conf, self.systemd.version())
        # No instance of MIG is proved, so that none has a parent.
        self._devices = supervision.devices(conf, settings, socket.gethostname(), lambda _: None)

    def start(self, daemon: Daemon, words: Sequence[str] | None) -> Job:
        command = self._command(daemon, words, PYTHON)
        try:
            devices = self._devices.of(daemon)
        except CannotStart as error:
            raise Unusable(f"it {error}") from None
        name = unit_name(daemon)
        wanted = unit_properties(daemon, command, devices, self._confinement)
        folder = unit.temporary_files(daemon, self._confinement)
        if not _wait(lambda: self._started(name, wanted, folder), GRACE):
            raise Unusable(
                f"systemd still has {folder[0]}, of another program at port {daemon.port}"
            )
        return _Unit(self, name)

    def _started(
        self,
        name: str,
        wanted: list[unit.Property],
        folder: tuple[str, list[unit.Property]],
    ) -> bool:
        """Have systemd start a unit; return False while it has the folder of the one before at this port."""
        from gsaas.gpu_host.daemons.systemd import UNIT_EXISTS, SystemdRefused

        try:
            self.systemd.start_transient(name, wanted, [folder])
        except SystemdRefused as refusal:
            if refusal.error == UNIT_EXISTS:
                return False
            raise Unusable(f"systemd refuses it: {refusal}") from None
        return True


def unit_name(daemon: Daemon) -> str:
    """Return a new name for a unit in the place of this daemon's; several may be there at the same time."""
    return f"{PREFIX}{daemon.key}-{secrets.token_hex(2)}{unit.SUFFIX}"


def unit_properties(
    daemon: Daemon,
    command: DaemonCommand,
    nodes: unit.Devices | None,
    confinement: unit.Confinement,
) -> list[unit.Property]:
    """Return the properties of a daemon's unit, and those by which nothing of it stays when it has ended."""
    return [
        *unit.properties(daemon, 0, command, nodes, confinement),
        ("CollectMode", ("s", "inactive-or-failed")),
        ("RuntimeMaxUSec", ("t", round(LONGEST * 1_000_000))),
    ]


class _Unit(Job):
    def __init__(self, place: Units, name: str) -> None:
        self._systemd = place.systemd
        self._name = name

    def lives(self) -> bool:
        return any(state.alive for state in self._systemd.units(self._name))

    def kill(self) -> None:
        self._systemd.kill(self._name, signal.SIGKILL)
        _wait(lambda: not self._systemd.has_processes(self._name) and not self.lives(), TIMEOUT)
        self._systemd.forget(self._name)

    def output(self) -> str:
        # The journal may still be reading what a unit that has ended printed.
        subprocess.run([*JOURNAL, "--sync"], check=False, capture_output=True)
        read = [
            *JOURNAL,
            "--quiet",
            "--no-pager",
            "--output=cat",
            f"_SYSTEMD_UNIT={self._name}",
            "+",
            f"UNIT={self._name}",  # what systemd says of it, if it could not even begin
        ]
        return subprocess.run(read, check=False, capture_output=True, text=True).stdout


def source() -> str:
    """Return the program as text, to be run where this package is not installed."""
    return Path(program.__file__).read_text(encoding="utf-8")


def run(
    words: Sequence[str],
    environment: Mapping[str, str],
    command: Sequence[str] = (sys.executable, "-"),
    timeout: float = TIMEOUT,
) -> Ran:
    """Run the program with *command*, which reads it from its standard input; return its result."""
    try:
        done = ended([*command, *words], {**os.environ, **environment}, source(), timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Ran(None, str(error))
    found = read(done.stdout)
    if found.result is None and done.returncode == TIMED_OUT:
        return Ran(None, "it did not end in time")
    if found.problem is not None and found.result is None:
        return Ran(None, done.stderr.strip()[-300:] or found.problem)
    return found


def ended(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    text: str = "",
    timeout: float = TIMEOUT,
) -> subprocess.CompletedProcess[str]:
    """Run a command whose standard input is *text*; raises `OSError` and `subprocess.TimeoutExpired`.

    One that takes too long, or is interrupted, is first asked to end, so that it gives back what it has.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            output, error = process.communicate(text, timeout)
        except BaseException:
            process.terminate()
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                pass  # and is killed
            finally:
                process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, error)


def read(output: str) -> Ran:
    """Return the result that the program printed last."""
    for line in reversed(output.splitlines()):
        try:
            result = json.loads(line)
        except ValueError:
            continue
        if isinstance(result, dict):
            error = result.get("error")
            return Ran(result, None if error is None else str(error))
    return Ran(None, output.strip()[-300:] or "it printed nothing")


def _wait(condition: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True
