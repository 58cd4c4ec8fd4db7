# SPDX-License-Identifier: Apache-2.0
"""The system's systemd over D-Bus: starts, stops and lists units.

The interface is org.freedesktop.systemd1(5). An unprivileged monitor needs polkit's permission for what changes a unit;
`etc/gsaas/polkit` has the rule.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from jeepney import DBusAddress, DBusErrorResponse, MatchRule, new_method_call
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import DBusConnection, Proxy, open_dbus_connection
from jeepney.low_level import HeaderFields

from gsaas.gpu_host.daemons.unavailable import SystemdUnavailable as SystemdUnavailable
from gsaas.gpu_host.daemons.unit import Property, UnitState
from gsaas.gpu_host.fence.layout import ControlGroup

_NAME = "org.freedesktop.systemd1"
_PATH = "/org/freedesktop/systemd1"
_UNITS = f"{_PATH}/unit/"
_MANAGER = f"{_NAME}.Manager"
_SERVICE = f"{_NAME}.Service"
_SLICE = f"{_NAME}.Slice"
_PROPERTIES = "org.freedesktop.DBus.Properties"
_TIMEOUT = 20.0
"""Seconds that systemd may take to answer."""
_BUS_ERROR = "org.freedesktop.DBus.Error."
_GONE = (
    f"{_NAME}.NoSuchUnit",
    f"{_NAME}.UnitNotLoaded",
    f"{_NAME}.NoSuchProcess",
    f"{_BUS_ERROR}UnknownObject",
)
"""Errors that say that there is nothing to act on."""
UNIT_EXISTS = f"{_NAME}.UnitExists"
"""The error for a unit, or one that it needs, whose name is taken still."""
_UNANSWERED = re.compile(
    re.escape(_BUS_ERROR)
    + r"(NoReply|Disconnected|ServiceUnknown|NameHasNoOwner|TimedOut|Timeout|LimitsExceeded|Spawn\..+)"
)
"""Errors of the bus itself (D-Bus specification, and dbus-protocol.h), as while systemd executes itself again."""
_SYSTEM_BUS = "SYSTEM"
"""jeepney's name for the bus at DBUS_SYSTEM_BUS_ADDRESS, or else at the usual place."""


class SystemdRefused(Exception):
    """systemd refused a call; the message is systemd's own, and *error* the D-Bus name of the error."""

    def __init__(self, message: str, error: str) -> None:
        super().__init__(message)
        self.error = error


@dataclass(frozen=True)
class Ending:
    """How a service ended. The fields are those of systemd."""

    result: str
    exec_main_status: int
    invocation_id: str


class Systemd:
    """A connection to systemd, made when it is first used, and made again after it broke. One thread uses it.

    *bus* is the address of a D-Bus. Methods raise `SystemdUnavailable`, and `SystemdRefused` where they say so.
    """

    def __init__(self, bus: str = _SYSTEM_BUS) -> None:
        self._bus = bus
        self._connection: DBusConnection | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def version(self) -> int:
        """Return the major version."""
        try:
            text = str(self._property(_PATH, _MANAGER, "Version"))
        except SystemdRefused as refusal:
            raise SystemdUnavailable(f"systemd does not report its version: {refusal}") from refusal
        found = re.search(r"\d+", text)
        return int(found[0]) if found else 0

    def units(self, pattern: str) -> list[UnitState]:
        """Return the loaded units whose names match *pattern*, a glob."""
        try:
            (rows,) = self._manage("ListUnitsByPatterns", "asas", ([], [pattern]))
        except SystemdRefused as refusal:
            raise SystemdUnavailable(f"systemd does not list units: {refusal}") from refusal
        return [UnitState(row[0], row[1], row[3], row[8]) for row in rows]

    def start_transient(
        self,
        name: str,
        properties: list[Property],
        needed: Sequence[tuple[str, list[Property]]] = (),
    ) -> None:
        """Have a unit with these properties started; returns before that is done. Raises `SystemdRefused`.

        *needed* are the names and properties of units that are made with it, and not started unless it requires them.
        """
        body = (name, "fail", properties, list(needed))
        self._manage("StartTransientUnit", "ssa(sv)a(sa(sv))", body)

    def stop(self, name: str) -> None:
        """Have a unit stopped, if it is loaded; returns before that is done."""
        self._act("StopUnit", "ss", (name, "replace"))

    def kill(self, name: str, number: int) -> None:
        """Send a signal to every process of a unit, if it has any."""
        self._act("KillUnit", "ssi", (name, "all", number))

    def forget(self, name: str) -> None:
        """Forget that a unit failed, so that systemd unloads it; if it is not loaded, do nothing."""
        self._act("ResetFailedUnit", "s", (name,))

    def has_processes(self, name: str) -> bool:
        """Return whether any process is left in the control group of a unit."""
        (found,) = self._act("GetUnitProcesses", "s", (name,)) or ([],)
        return bool(found)

    def control_group(self, name: str) -> ControlGroup | None:
        """Return the control group of a service; None if it has none, or is not loaded."""
        path = _UNITS + _escape(name)
        try:
            place = str(self._property(path, _SERVICE, "ControlGroup"))
            number = int(self._property(path, _SERVICE, "ControlGroupId"))
            if not number or not place:  # it may begin or end between the two questions
                return None
            parts = PurePosixPath(place).parts
            return ControlGroup(number, len(parts) - 1, self._top(parts[1]), place)
        except SystemdRefused as refusal:
            if refusal.error in _GONE:
                return None
            raise

    def _top(self, name: str) -> int | None:
        """Return the number of the control group *name* below the root; None unless it is that of a slice."""
        if not name.endswith(".slice"):
            return None
        path = _UNITS + _escape(name)
        if self._property(path, _SLICE, "ControlGroup") != f"/{name}":
            return None  # one of another systemd, in whose container this one is
        return int(self._property(path, _SLICE, "ControlGroupId")) or None

    def ending(self, name: str) -> Ending | None:
        """Return how a service ended; None if it is not loaded, as one that ended well."""
        answer = self._act("GetUnit", "s", (name,))
        if answer is None:
            return None
        (path,) = answer
        try:
            return Ending(
                str(self._property(path, _SERVICE, "Result")),
                int(self._property(path, _SERVICE, "ExecMainStatus")),
                bytes(self._property(path, f"{_NAME}.Unit", "InvocationID")).hex(),
            )
        except SystemdRefused as refusal:
            if refusal.error in _GONE:  # unloaded since
                return None
            raise

    def _act(self, method: str, signature: str, body: tuple[object, ...]) -> tuple[Any, ...] | None:
        """Call a method of the manager; return its answer, or None if there is nothing to act on."""
        try:
            return self._manage(method, signature, body)
        except SystemdRefused as refusal:
            if refusal.error in _GONE:
                return None
            raise

    def _manage(self, method: str, signature: str, body: tuple[object, ...]) -> tuple[Any, ...]:
        return self._call(_PATH, _MANAGER, method, signature, body)

    def _property(self, path: str, interface: str, name: str) -> Any:
        ((_, value),) = self._call(path, _PROPERTIES, "Get", "ss", (interface, name))
        return value

    def _call(
        self, path: str, interface: str, method: str, signature: str, body: tuple[object, ...]
    ) -> tuple[Any, ...]:
        address = DBusAddress(path, bus_name=_NAME, interface=interface)
        message = new_method_call(address, method, signature, body)
        try:
            if self._connection is None:
                self._connection = _connect(self._bus)
            reply = self._connection.send_and_get_reply(message, timeout=_TIMEOUT)
        except OSError as error:  # TimeoutError included
            self.close()
            raise SystemdUnavailable(f"systemd does not answer over D-Bus: {error}") from error
        if name := reply.header.fields.get(HeaderFields.error_name):
            text = f"{reply.body[0] if reply.body else name}"
            if _UNANSWERED.fullmatch(name):
                self.close()
                raise SystemdUnavailable(f"systemd does not answer over D-Bus: {text}")
            raise SystemdRefused(text, name)
        answer: tuple[Any, ...] = reply.body
        return answer


class UnitChanges:
    """The `gsaas.gpu_host.daemons.runner.Changes` of units whose names begin with *prefix*."""

    def __init__(self, prefix: str, bus: str = _SYSTEM_BUS) -> None:
        self._path = _UNITS + _escape(prefix)
        try:
            self._connection = _connect(bus)
            manager = DBusAddress(_PATH, bus_name=_NAME, interface=_MANAGER)
            self._connection.send_and_get_reply(
                new_method_call(manager, "Subscribe"), timeout=_TIMEOUT
            )
            rule = MatchRule(type="signal", interface=_PROPERTIES, member="PropertiesChanged")
            rule.add_arg_condition(0, f"{_NAME}.Unit")
            Proxy(message_bus, self._connection, timeout=_TIMEOUT).AddMatch(rule)
        except (OSError, DBusErrorResponse) as error:
            raise SystemdUnavailable(
                f"systemd does not report changes over D-Bus: {error}"
            ) from error

    def fileno(self) -> int:
        """Return the descriptor."""
        sock: socket.socket = self._connection.sock
        return sock.fileno()

    def take(self) -> bool:
        """Return whether such a unit changed since the last call; raises `SystemdUnavailable`."""
        changed = False
        while True:
            try:
                message = self._connection.receive(timeout=0)
            except TimeoutError:
                return changed
            except OSError as error:
                raise SystemdUnavailable(
                    f"systemd has stopped reporting changes over D-Bus: {error}"
                ) from error
            changed |= message.header.fields.get(HeaderFields.path, "").startswith(self._path)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _connect(bus: str) -> DBusConnection:
    """Return a connection to a D-Bus; raises `OSError`."""
    try:
        return open_dbus_connection(bus)
    except (DBusErrorResponse, RuntimeError) as error:
        raise OSError(str(error)) from error


def _escape(name: str) -> str:
    """Return *name* as D-Bus paths of systemd contain it."""
    return re.sub(r"[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):02x}", name)
