# SPDX-License-Identifier: Apache-2.0
"""The simulated daemons, over real connections on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from gsaas.objects.address import Address
from gsaas.standalone.simulated_daemon import SimulatedDaemons


@pytest.fixture
def daemons() -> Iterator[SimulatedDaemons]:
    started = SimulatedDaemons()
    yield started
    started.stop_all()


@pytest.fixture
def address() -> Address:
    """A free port of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Address(*probe.getsockname())


def connect(address: Address) -> socket.socket:
    return socket.create_connection((address.ip, address.port), timeout=30)


def greeting(connection: socket.socket) -> dict[str, str]:
    return json.loads(connection.makefile("rb").readline())


def refused(address: Address) -> bool:
    """Return whether a connection to *address* is refused."""
    try:
        connect(address).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_daemon_sends_its_gpu_its_host_and_its_peer(daemons, address):
    daemons.start("GPU-1", "gpu01", address)

    with connect(address) as connection:
        assert greeting(connection) == {"gpu": "GPU-1", "host": "gpu01", "peer": "127.0.0.1"}


def test_a_daemon_echoes_data_of_any_length(daemons, address):
    daemons.start("GPU-1", "gpu01", address)
    sent = b"one\ntwo\n" + b"x" * 200_000 + b"\n"

    with connect(address) as connection:
        stream = connection.makefile("rwb")
        stream.readline()
        stream.write(sent)
        stream.flush()
        assert stream.read(len(sent)) == sent


def test_stopping_a_daemon_cuts_its_connections_and_no_others(daemons, address):
    other = Address("127.0.0.2", address.port)
    daemons.start("GPU-1", "gpu01", address)
    daemons.start("GPU-2", "gpu01", other)
    with connect(address) as cut, connect(other) as kept:
        greeting(cut)
        greeting(kept)

        daemons.stop("GPU-1")

        with suppress(ConnectionResetError):
            assert cut.recv(1) == b""
        assert refused(address)
        kept.sendall(b"still there\n")
        assert kept.recv(100) == b"still there\n"


def test_a_client_that_does_not_read_does_not_delay_a_stop(daemons, address):
    daemons.start("GPU-1", "gpu01", address)
    with connect(address) as stuck:
        stuck.settimeout(0.2)
        with pytest.raises(TimeoutError):
            while True:
                stuck.sendall(b"x" * 65536)

        daemons.stop("GPU-1")

        assert refused(address)


def test_a_stopped_gpu_can_be_started_again_at_the_same_address(daemons, address):
    for _ in range(3):
        daemons.start("GPU-1", "gpu01", address)
        with connect(address) as connection:
            assert greeting(connection)["gpu"] == "GPU-1"
            daemons.stop("GPU-1")
    daemons.stop("GPU-1")
    daemons.stop_all()
    daemons.start("GPU-1", "gpu02", address)
    with connect(address) as connection:
        assert greeting(connection)["host"] == "gpu02"


def test_a_second_daemon_of_a_gpu_or_at_an_address_is_refused(daemons, address):
    daemons.start("GPU-1", "gpu01", address)
    with pytest.raises(ValueError, match="GPU-1"):
        daemons.start("GPU-1", "gpu01", Address("127.0.0.2", address.port))
    with pytest.raises(OSError, match="in use"):
        daemons.start("GPU-2", "gpu01", address)
    daemons.start("GPU-2", "gpu01", Address("127.0.0.2", address.port))


def test_connections_have_tcp_keepalive(daemons, address):
    """`ss -o` shows the keepalive timer of the daemon's end of the connection."""
    daemons.start("GPU-1", "gpu01", address)
    with connect(address) as connection:
        greeting(connection)
        shown = subprocess.run(
            ["ss", "-Htno", "src", f"{address.ip}:{address.port}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    assert "timer:(keepalive," in shown


@pytest.mark.slow
def test_the_program_serves_until_sigterm(address):
    program = subprocess.Popen(
        [sys.executable, "-m", "gsaas.standalone.simulated_middleware"]
        + ["--gpu", "GPU-1", "--host", "gpu01", "--listen", str(address)]
    )
    try:
        deadline = time.monotonic() + 60
        while refused(address) and program.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        with connect(address) as connection:
            assert greeting(connection)["gpu"] == "GPU-1"
            os.kill(program.pid, signal.SIGTERM)
            assert program.wait(timeout=60) == 0
    finally:
        program.kill()
        program.wait()
