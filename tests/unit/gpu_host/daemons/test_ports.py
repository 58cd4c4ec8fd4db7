# SPDX-License-Identifier: Apache-2.0
"""What the kernel says about listeners."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gsaas.gpu_host.daemons import ports
from gsaas.gpu_host.daemons.ports import has_listener, is_listening
from gsaas.netlink import sock_diag


@pytest.fixture(params=[(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def listener(request) -> Iterator[socket.socket]:
    family, address = request.param
    try:
        with socket.create_server((address, 0), family=family) as found:
            yield found
    except OSError:
        pytest.skip(f"there is no {address} here")


def test_a_port_is_taken_while_something_listens_there_and_not_by_connections(listener):
    port = listener.getsockname()[1]
    assert is_listening(port)
    with socket.create_connection(listener.getsockname()[:2]) as client:
        assert not is_listening(client.getsockname()[1])
        listener.close()
        assert not is_listening(port)


def test_the_table_of_all_connections_is_not_read_for_it(listener, monkeypatch):
    """It takes the kernel milliseconds, and a daemon that starts is looked at every millisecond."""
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: pytest.fail("a table is read"))
    assert is_listening(listener.getsockname()[1])


def test_without_netlink_the_table_is_read(listener, monkeypatch):
    def refuse() -> socket.socket:
        raise OSError("no such protocol")

    monkeypatch.setattr(sock_diag, "open_socket", refuse)
    assert ports.is_listening(listener.getsockname()[1])


def test_listeners_are_told_from_connections():
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue\n"
        "   0: 0100007F:4E20 00000000:0000 0A 00000000:00000000\n"
        "   1: 0100007F:4E21 0100007F:9999 01 00000000:00000000\n"
    )
    assert [has_listener(table, port) for port in (20000, 20001, 20002)] == [True, False, False]
