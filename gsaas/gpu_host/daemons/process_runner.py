# SPDX-License-Identifier: Apache-2.0
"""Runs daemons as processes of this machine, without systemd: for gsaas-standalone, whose hosts are network namespaces.

1. A daemon goes on when the process that has started it ends, as its VMs do. The next one finds it in /proc: the name
   of its first process says whose it is and which daemon. So nothing is recorded that a crash could leave behind.
2. That first process is unshare(1), which runs the daemon in a PID namespace and a mount namespace. When it is killed,
   every process of the daemon ends, and with them its temporary files.
3. The daemon of a CPU device gets no more data than its share: RLIMIT_DATA (setrlimit(2)). It holds for each of its
   processes by itself. There are no other walls: what a daemon runs may do what the user of gsaas-standalone may.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gsaas.gpu_host.daemons import unit
from gsaas.gpu_host.daemons.runner import CannotStart, DaemonRunner, last_line
from gsaas.gpu_host.daemons.unit import UnitState
from gsaas.gpu_host.daemons.usage import of_processes
from gsaas.gpu_host.fence.layout import ControlGroup
from gsaas.netlink.namespace import entered
from gsaas.objects.daemon import Daemon, DaemonUsage
from gsaas.remoting.daemon import DaemonCommand, DaemonSettings

_TITLE = "gsaas-daemon"
"""What the name of the first process of each daemon begins with; its network namespace and its description follow."""
_MIB = 1 << 20
_READ = 8192
"""Bytes that are read of what a daemon has printed."""
_POLL_INTERVAL = 0.02
"""Seconds between two looks at processes that end."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BEGIN = """\
mount -t tmpfs -o "size=$1M,mode=0700,nosuid,nodev" tmpfs "$TMPDIR"
shift
exec "$@"
"""


@dataclass
class _Process:
    """The first process of a daemon."""

    pid: int
    descriptor: int
    """Of the process (pidfd_open(2)): unlike its number, it cannot come to mean another one."""
    description: str
    popen: subprocess.Popen[bytes] | None = None
    """None: another process has started it."""

    def lives(self) -> bool:
        if self.popen is not None:
            return self.popen.poll() is None
        return not select.select([self.descriptor], [], [], 0)[0]


class ProcessRunner(DaemonRunner):
    """Runs the daemons of *host* in the network namespace *netns*.

    *folder* is for what they print, and for their temporary files, *tmp_mb* MiB of each daemon at most.
    """

    def __init__(
        self,
        settings: DaemonSettings,
        host: str,
        address: str,
        netns: str,
        *,
        folder: Path,
        tmp_mb: int,
    ) -> None:
        super().__init__(settings, host, address, netns)
        self._name = netns
        self._folder = folder
        self._tmp_mb = tmp_mb
        self._processes: dict[str, _Process] = {}
        self._ends: _Ends | None = None
        for pid, description in find([netns]):
            with suppress(ProcessLookupError):
                process = _Process(pid, os.pidfd_open(pid), description)
                try:
                    key = unit.parse(description)[0].key
                except ValueError:
                    key = f"stranger-{pid}"
                self._processes[key] = process

    def watch(self) -> _Ends:
        """Return what reports that a daemon's first process has ended."""
        self._ends = _Ends()
        for process in self._processes.values():
            self._ends.add(process.descriptor)
        return self._ends

    def units(self) -> dict[str, UnitState]:
        return {
            key: UnitState(key, process.description, "active" if process.lives() else "failed")
            for key, process in self._processes.items()
        }

    def start(self, daemon: Daemon, restarts: int) -> None:
        command = self._command(daemon)
        self.forget(daemon.key)
        program = command.argv[0]
        if "/" in program and not os.access(Path(command.folder, program), os.X_OK):
            raise CannotStart("cannot start: its program cannot be executed; see [daemons]command")
        description = unit.describe(daemon, restarts)
        folder = self._folder / daemon.key
        try:
            folder.mkdir(mode=0o700, parents=True)
            with self._printed(daemon.key).open("wb") as printed, entered(self._name):
                popen = subprocess.Popen(
                    [
                        f"{_TITLE} {self._name} {description}",
                        *("--pid", "--fork", "--kill-child", "--mount", "--mount-proc"),
                        *("sh", "-euc", _BEGIN, "sh", str(self._tmp_mb)),
                        *("prlimit", *self._limits(command), *command.argv),
                    ],
                    executable=shutil.which("unshare", path=_PATH),
                    env={"PATH": _PATH, **command.environment, "TMPDIR": str(folder)},
                    cwd=command.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                    # Signals of a terminal are for its user's processes.
                    start_new_session=True,
                )
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise CannotStart(f"cannot start: {error.strerror}: {error.filename}") from None
        process = _Process(popen.pid, os.pidfd_open(popen.pid), description, popen)
        self._processes[daemon.key] = process
        if self._ends is not None:
            self._ends.add(process.descriptor)

    def control_group(self, daemon: Daemon) -> ControlGroup | None:
        """Return None: it is that of the process that has started it."""
        return None

    def usage(self, daemon: Daemon, group: ControlGroup | None) -> DaemonUsage | None:
        process = self._processes.get(daemon.key)
        return None if process is None else of_processes(process.pid)

    def has_processes(self, state: UnitState | None) -> bool:
        return state is not None and not state.ended

    def stop(self, key: str) -> None:
        """Kill it: as the first process of its PID namespace, it ignores SIGTERM unless it has a handler."""
        self.kill(key)

    def kill(self, key: str) -> None:
        process = self._processes.get(key)
        if process is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process.descriptor, signal.SIGKILL)

    def forget(self, key: str) -> None:
        process = self._processes.pop(key, None)
        if process is not None:
            os.close(process.descriptor)
        shutil.rmtree(self._folder / key, ignore_errors=True)
        self._printed(key).unlink(missing_ok=True)

    def ending(self, key: str) -> tuple[str, str | None]:
        process = self._processes.get(key)
        status = None if process is None or process.popen is None else process.popen.poll()
        if status is None:
            return "ended", key
        return unit.failure("signal" if status < 0 else "exit-code", abs(status)), key

    def last_line(self, run: str) -> str:
        try:
            with self._printed(run).open("rb") as printed:
                printed.seek(max(0, printed.seek(0, os.SEEK_END) - _READ))
                return last_line(printed.read(_READ).splitlines())
        except OSError:
            return ""

    def where_to_look(self, key: str) -> str:
        return f"cat {self._printed(key)}"

    def _printed(self, key: str) -> Path:
        return self._folder / f"{key}.log"

    def _limits(self, command: DaemonCommand) -> Iterator[str]:
        yield "--core=0"
        # What it prints goes into a file; without a bound it could fill the disk.
        yield f"--fsize={self._tmp_mb * _MIB}"
        yield from kept_to_its_share(command)


def kept_to_its_share(command: DaemonCommand) -> list[str]:
    """Return the options of prlimit(1) that keep the daemon of a CPU device to its memory; none for others."""
    if command.host_memory_mb is None:
        return []
    return [f"--data={command.host_memory_mb * _MIB}"]


class _Ends:
    """The `gsaas.gpu_host.daemons.runner.Changes` of processes: that one has ended."""

    def __init__(self) -> None:
        self._poll = select.epoll()

    def add(self, descriptor: int) -> None:
        """Also report the end of the process with this descriptor; closing the descriptor undoes that."""
        self._poll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._poll.fileno()

    def take(self) -> bool:
        """Return whether a process has ended since the last call."""
        return bool(self._poll.poll(0))

    def close(self) -> None:
        """Release the descriptor."""
        self._poll.close()


def find(namespaces: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield pid and description of the first process of each daemon in one of *namespaces*."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError, ValueError):
            name = (folder / "cmdline").read_bytes().split(b"\0", 1)[0].decode()
            title, netns, description = name.split(" ", 2)
            # Until it executes the daemon, the second process has the same name.
            is_first = os.getsid(int(folder.name)) == int(folder.name)
            if title == _TITLE and netns in namespaces and is_first:
                yield int(folder.name), description


def end_all(namespaces: Collection[str], timeout: float) -> bool:
    """Kill every daemon in *namespaces*; return whether none is left after *timeout* seconds."""
    deadline = time.monotonic() + timeout
    while found := [pid for pid, _ in find(namespaces)]:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_INTERVAL)
    return True
