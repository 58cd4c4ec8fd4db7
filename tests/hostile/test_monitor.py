# SPDX-License-Identifier: Apache-2.0
"""What keeps a monitor busy: daemons that are checked and do not end their answer, and silence at the gate."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

import h2.config
import h2.connection
import pytest

from gsaas.gpu_host import gate as module
from gsaas.gpu_host.daemons import health
from gsaas.gpu_host.daemons.health import HealthCheckFailed
from gsaasclient import grant_client
from tests.unit.gpu_host import test_gate as gates
from tests.unit.gpu_host.daemons.test_health import server

engine, gate = gates.engine, gates.gate


def test_a_daemon_that_keeps_sending_is_not_listened_to_for_longer(monkeypatch):
    """Each PING gave it as much time again, so four daemons could keep all others from being checked."""
    monkeypatch.setattr(health, "TIMEOUT", 0.3)

    def ping(stream: socket.socket) -> None:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        with suppress(OSError):
            for _ in range(600):
                connection.ping(b"8 bytes!")
                stream.sendall(connection.data_to_send())
                time.sleep(0.02)
            pinged_to_the_end.append(True)

    pinged_to_the_end: list[bool] = []
    with server(ping) as daemon, pytest.raises(HealthCheckFailed, match="does not answer"):
        health.http2("127.0.0.1", daemon)

    def drip(stream: socket.socket) -> None:
        with suppress(OSError):
            for _ in range(600):
                stream.sendall(b" ")
                time.sleep(0.02)
            pinged_to_the_end.append(True)

    with server(drip) as daemon, pytest.raises(HealthCheckFailed, match="does not name"):
        health.simulated("127.0.0.1", daemon)
    assert not pinged_to_the_end


def test_idle_clients_of_any_number_of_addresses_do_not_block_others(gate, monkeypatch):
    """All connections were taken for as long as their clients were silent, and a grant waited for that time."""
    monkeypatch.setattr(module._GrantHandler, "timeout", 600)
    idle = [
        gates.silent(gate, f"127.0.1.{number % 32 + 1}")
        for number in range(2 * module.MAX_CONNECTIONS)
    ]
    try:
        grant_client.present(gate, "lease-1", "grant")
    finally:
        for connection in idle:
            connection.close()


def test_the_silent_connections_of_one_address_make_room_for_its_next(gate, monkeypatch):
    monkeypatch.setattr(module._GrantHandler, "timeout", 600)
    count = module.MAX_SILENT_PER_ADDRESS
    idle = [gates.silent(gate, "127.0.1.1") for _ in range(count + 1)]
    assert idle[0].makefile("rb").read().startswith(b"refused gsaas.bad-request")  # cut short
    grant_client.present(gate, "lease-1", "grant")
    for connection in idle:
        connection.close()
