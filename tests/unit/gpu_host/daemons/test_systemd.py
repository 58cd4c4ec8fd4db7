# SPDX-License-Identifier: Apache-2.0
"""Errors that systemd or the D-Bus answers with, and a supervisor that meets them."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from jeepney import MessageType, new_error, new_method_return
from jeepney.low_level import HeaderFields, Parser

from gsaas.gpu_host.daemons.plan import DaemonTimeouts
from gsaas.gpu_host.daemons.runner import Changes
from gsaas.gpu_host.daemons.supervisor import Supervisor
from gsaas.gpu_host.daemons.systemd import (
    Systemd,
    SystemdRefused,
    SystemdUnavailable,
    UnitChanges,
)
from gsaas.gpu_host.daemons.unit import UnitState
from gsaas.gpu_host.daemons.unit_runner import UnitRunner
from tests.support.waiting import until

OF_THE_BUS = "org.freedesktop.DBus.Error."


class Bus:
    """A D-Bus where systemd answers every call with the error of the name *error*."""

    def __init__(self, path: Path) -> None:
        self.address = f"unix:path={path}"
        self.error = ""
        self.connections = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            while not client.recv(1024).endswith(b"\r\n"):  # AUTH
                pass
            client.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
            parser = Parser()
            serials = itertools.count(1)
            begun = False
            while data := client.recv(65536):
                if not begun:
                    data = data.partition(b"BEGIN\r\n")[2]
                    begun = True
                parser.add_data(data)
                while (message := parser.get_next_message()) is not None:
                    assert message.header.message_type is MessageType.method_call
                    if message.header.fields[HeaderFields.member] == "Hello":
                        reply = new_method_return(message, "s", (":1.1",))
                    else:
                        reply = new_error(message, self.error, "s", ("it says no",))
                    client.sendall(reply.serialise(serial=next(serials)))


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    found = Bus(tmp_path / "bus")
    yield found
    found.close()


@pytest.mark.parametrize(
    "error",
    [
        *("NoReply", "Disconnected", "ServiceUnknown", "NameHasNoOwner", "TimedOut", "Timeout"),
        *("LimitsExceeded", "Spawn.ServiceNotFound"),
    ],
)
def test_an_error_of_the_bus_means_that_systemd_cannot_be_asked(bus, error):
    """NoReply is what calls in progress get during `systemctl daemon-reexec`."""
    systemd = Systemd(bus.address)
    bus.error = OF_THE_BUS + error
    for _ in range(2):
        with pytest.raises(SystemdUnavailable, match="does not answer over D-Bus: it says no"):
            systemd.stop("x.service")
    assert bus.connections == 2, "it connects again"
    systemd.close()


def test_a_refusal_of_systemd_is_a_refusal(bus):
    systemd = Systemd(bus.address)
    bus.error = f"{OF_THE_BUS}AccessDenied"
    with pytest.raises(SystemdRefused, match="it says no"):
        systemd.stop("x.service")
    systemd.close()


@pytest.mark.parametrize("ask", [Systemd.version, lambda systemd: systemd.units("x*")])
def test_who_may_not_even_ask_is_told_so_in_one_line(bus, ask):
    systemd = Systemd(bus.address)
    bus.error = f"{OF_THE_BUS}AccessDenied"
    with pytest.raises(SystemdUnavailable, match=r"^systemd does not .*: it says no$"):
        ask(systemd)
    systemd.close()


def test_a_unit_that_is_unloaded_meanwhile_has_no_ending(bus):
    systemd = Systemd(bus.address)
    bus.error = "org.freedesktop.systemd1.NoSuchUnit"
    assert systemd.ending("x.service") is None
    systemd.close()


class _Failing(UnitRunner):
    """Fails with *error* when it is asked for units, as long as there is one."""

    error: Exception | None = None
    asked = 0

    def __init__(self) -> None:
        """Have no units."""

    def units(self) -> dict[str, UnitState]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return {}


class _NoChanges(UnitChanges):
    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()

    def fileno(self) -> int:
        return self._ours.fileno()

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


@pytest.mark.parametrize(
    "error",
    [
        SystemdUnavailable("it executes itself again"),
        SystemdRefused("no", "org.example.Unheard"),
        RuntimeError("a mistake"),
    ],
)
def test_the_supervisor_goes_on_after_any_error(error, monkeypatch, caplog):
    monkeypatch.setattr("gsaas.gpu_host.daemons.supervisor.RETRY_INTERVAL", 0.01)
    runner = _Failing()
    watches: list[Changes] = []

    def watch() -> Changes:
        watches.append(_NoChanges())
        return watches[-1]

    supervisor = Supervisor(runner, DaemonTimeouts(), watch)
    supervisor.start()
    try:
        runner.error = error
        supervisor.set_desired(())
        until(lambda: "the daemons stay as they are" in caplog.text, "it to be logged")
        runner.error = None
        asked = runner.asked
        until(lambda: runner.asked > asked, "it to look again")
        assert len(watches) > 1, "it watches again, too"
    finally:
        supervisor.stop()
