# SPDX-License-Identifier: Apache-2.0
"""What starts and ends the daemons of a host: as units of systemd (`unit_runner`), or as processes (`process_runner`).

What to do, and when, is decided elsewhere (`plan`, through `supervisor`).
"""

from __future__ import annotations

import abc
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

from gsaas.gpu_host.daemons import health, memory_limit, ports, unit
from gsaas.gpu_host.daemons.unit import UnitState
from gsaas.gpu_host.daemons.usage import of_control_group
from gsaas.gpu_host.fence.layout import ControlGroup
from gsaas.netlink.namespace import entered
from gsaas.objects.daemon import Daemon, DaemonUsage
from gsaas.objects.printable import one_line
from gsaas.remoting.daemon import DaemonCommand, DaemonSettings

_LAST_LINE = 200
"""Characters of the last line of a daemon."""


class CannotStart(Exception):
    """A daemon was not started; the message says why, as a sentence without its subject."""


class NotYet(Exception):
    """A daemon was not started because its last run is still being cleaned up; the message is like `CannotStart`'s."""


class Changes(Protocol):
    """Reports that something changed about the daemons, but not what. One thread uses it.

    Its descriptor becomes readable when there may be something to `take`.
    """

    def fileno(self) -> int:
        """Return the descriptor."""

    def take(self) -> bool:
        """Return whether anything changed since the last call; raises `SystemdUnavailable`."""

    def close(self) -> None:
        """Release the descriptor."""


class DaemonRunner(abc.ABC):
    """Runs the daemons of *host*, which listen at *address*, its IPv4 address on the GPU network.

    *netns* is the name of the network namespace of the daemons; None: that of this process. Methods raise
    `gsaas.gpu_host.daemons.unavailable.SystemdUnavailable` while it cannot be said which daemons there are.
    """

    def __init__(
        self, settings: DaemonSettings, host: str, address: str, netns: str | None = None
    ) -> None:
        self._settings = settings
        self._host = host
        self._address = address
        self._netns = netns
        self._check = health.CHECKS[settings.health]

    @abc.abstractmethod
    def units(self) -> dict[str, UnitState]:
        """Return what runs each daemon, by the keys of the daemons."""

    def adopt(self) -> list[tuple[Daemon, int, UnitState]]:
        """Return each daemon that an earlier monitor started, with its restarts and what runs it."""
        found = []
        for state in self.units().values():
            with suppress(ValueError):  # a stranger, which `Strangers` ends
                found.append((*unit.parse(state.description), state))
        return found

    @abc.abstractmethod
    def start(self, daemon: Daemon, restarts: int) -> None:
        """Have a daemon started; may return before that is done. Raises `CannotStart`, or `NotYet`."""

    @abc.abstractmethod
    def control_group(self, daemon: Daemon) -> ControlGroup | None:
        """Return the control group of a daemon; None while it has none, or none of its own."""

    def usage(self, daemon: Daemon, group: ControlGroup | None) -> DaemonUsage | None:
        """Return what a daemon in this control group has used up to now; None if that is not known.

        Another thread than that of the other methods may call it.
        """
        return None if group is None or group.path is None else of_control_group(group.path)

    def check(self, daemon: Daemon) -> str | None:
        """Return the version of a healthy daemon, None if it does not report one; raises `health.HealthCheckFailed`.

        `health.LimitLost` if the memory that programs take through it is not limited any more.
        """
        command = self._settings.command(daemon, self._host, self._address)
        if (missing := memory_limit.missing(command)) is not None:
            raise health.LimitLost(
                f"was ended, because its limit of {daemon.memory_mb} MiB has no effect any more: {missing}"
            )
        with entered(self._netns):
            return self._check(self._address, daemon)

    @abc.abstractmethod
    def has_processes(self, state: UnitState | None) -> bool:
        """Return whether a daemon that this runs has processes; None: nothing runs it."""

    def taken_port(self, daemon: Daemon) -> int | None:
        """Return the first of its ports on which any process, of the daemon or not, listens; None: there is none."""
        with entered(self._netns):
            return next((port for port in daemon.all_ports if ports.is_listening(port)), None)

    @abc.abstractmethod
    def stop(self, key: str) -> None:
        """Have a daemon end."""

    @abc.abstractmethod
    def kill(self, key: str) -> None:
        """End every process of a daemon now."""

    @abc.abstractmethod
    def forget(self, key: str) -> None:
        """Forget a daemon without processes."""

    @abc.abstractmethod
    def ending(self, key: str) -> tuple[str, str | None]:
        """Return how a daemon ended, a sentence without its subject, and what `last_line` knows that run by, if any."""

    @abc.abstractmethod
    def last_line(self, run: str) -> str:
        """Return the last line that a daemon printed in one run; empty if it is not known."""

    @abc.abstractmethod
    def where_to_look(self, key: str) -> str:
        """Return the command that shows an operator more of a daemon."""

    def _command(self, daemon: Daemon) -> DaemonCommand:
        """Return how to start a daemon; raises `CannotStart` if it cannot start, or would have no limit."""
        if (taken := self.taken_port(daemon)) is not None:
            raise CannotStart(f"cannot start: another process listens on port {taken}")
        try:
            command = self._settings.command(daemon, self._host, self._address)
        except ValueError as error:
            raise CannotStart(f"cannot start: {error}") from None
        if (missing := memory_limit.missing(command)) is not None:
            raise CannotStart(
                f"is not started, because its limit of {daemon.memory_mb} MiB would have no effect: {missing}; "
                "see [daemons]memory_limit"
            )
        return command


def last_line(lines: Iterable[bytes]) -> str:
    """Return the last of *lines* that is not empty, cut, and without what a terminal would obey: a tenant may have
    printed it.
    """
    last = ""
    for line in lines:
        last = line.decode(errors="replace").strip() or last
    return one_line(last[:_LAST_LINE], _LAST_LINE)
