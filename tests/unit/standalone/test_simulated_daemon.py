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


def hello(connection: socket.socket) -> dict[str, str]:
    return json.loads(connection.makefile("rb").readline())


def refused(address: Address) -> bool:
    try:
        connect(address).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_daemon_says_which_gpu_it_is_and_whom_it_sees(daemons, address):
    daemons.start("GPU-1", "gpu01", address)

    with connect(address) as connection:
        assert hello(connection) == {"gpu": "GPU-1", "host": "gpu01", "peer": "127.0.0.1"}


def test_a_daemon_returns_what_it_is_sent_however_long(daemons, address):
    daemons.start("GPU-1", "gpu01", address)
    sent = b"one\ntwo\n" + b"x" * 200_000 + b"\n"

    with connect(address) as connection:
        stream = connection.makefile("rwb")
        stream.readline()
        stream.write(sent)
        stream.flush()
        assert stream.read(len(sent)) == sent


def test_stopping_one_cuts_its_connections_and_leaves_the_others(daemons, address):
    other = Address("127.0.0.2", address.port)
    daemons.start("GPU-1", "gpu01", address)
    daemons.start("GPU-2", "gpu01", other)
    with connect(address) as cut, connect(other) as kept:
        hello(cut)
        hello(kept)

        daemons.stop("GPU-1")

        with suppress(ConnectionResetError):
            assert cut.recv(1) == b""
        assert refused(address)
        kept.sendall(b"still there\n")
        assert kept.recv(100) == b"still there\n"


def test_a_client_that_does_not_read_cannot_hold_a_daemon(daemons, address):
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
            assert hello(connection)["gpu"] == "GPU-1"
            daemons.stop("GPU-1")
    daemons.stop("GPU-1")
    daemons.stop_all()
    daemons.start("GPU-1", "gpu02", address)
    with connect(address) as connection:
        assert hello(connection)["host"] == "gpu02"


def test_a_gpu_has_one_daemon_and_an_address_too(daemons, address):
    daemons.start("GPU-1", "gpu01", address)
    with pytest.raises(ValueError, match="GPU-1"):
        daemons.start("GPU-1", "gpu01", Address("127.0.0.2", address.port))
    with pytest.raises(OSError, match="in use"):
        daemons.start("GPU-2", "gpu01", address)
    daemons.start("GPU-2", "gpu01", Address("127.0.0.2", address.port))


def test_connections_are_kept_alive_so_that_vanished_clients_are_noticed(daemons, address):
    """Asked of the kernel: `ss -o` shows the timer of the daemon's end."""
    daemons.start("GPU-1", "gpu01", address)
    with connect(address) as connection:
        hello(connection)
        shown = subprocess.run(
            ["ss", "-Htno", "src", f"{address.ip}:{address.port}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    assert "timer:(keepalive," in shown


def test_as_a_program_it_serves_until_told_to_stop(address):
    program = subprocess.Popen(
        [sys.executable, "-m", "gsaas.standalone.simulated_middleware"]
        + ["--gpu", "GPU-1", "--host", "gpu01", "--listen", str(address)]
    )
    try:
        deadline = time.monotonic() + 60
        while refused(address) and program.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        with connect(address) as connection:
            assert hello(connection)["gpu"] == "GPU-1"
            os.kill(program.pid, signal.SIGTERM)
            assert program.wait(timeout=60) == 0
    finally:
        program.kill()
        program.wait()
