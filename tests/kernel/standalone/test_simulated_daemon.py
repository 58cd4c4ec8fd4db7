# SPDX-License-Identifier: Apache-2.0
"""Simulated daemons inside the network namespaces of simulated GPU hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gsaas.objects.address import Address
from gsaas.standalone.simulated_daemon import SimulatedDaemons

pytestmark = pytest.mark.kernel

OWN_NAMESPACE = Path("/proc/thread-self/ns/net")
ADDRESS = Address("127.0.0.1", 8308)
READ_LINE = (
    "import socket; print(socket.create_connection(('127.0.0.1', 8308)).makefile().readline())"
)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    names = [f"gsaas-sim-{os.getpid()}-{number}" for number in range(2)]
    for name in names:
        subprocess.run(["ip", "netns", "add", name], check=True)
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
    yield names
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.fixture
def daemons() -> Iterator[SimulatedDaemons]:
    started = SimulatedDaemons()
    yield started
    started.stop_all()


def test_each_host_has_its_own_daemon_at_the_same_address(
    hosts: list[str], daemons: SimulatedDaemons
):
    home = OWN_NAMESPACE.stat().st_ino
    for name in hosts:
        daemons.start(f"GPU-{name}", name, ADDRESS, netns=name)

    for name in hosts:
        greeting = subprocess.run(
            ["ip", "netns", "exec", name, sys.executable, "-c", READ_LINE],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert f'"host": "{name}"' in greeting
    assert OWN_NAMESPACE.stat().st_ino == home


def test_a_host_that_does_not_exist_is_not_made(daemons: SimulatedDaemons):
    with pytest.raises(FileNotFoundError):
        daemons.start("GPU-1", "nowhere", ADDRESS, netns="gsaas-nowhere")
    assert not Path("/run/netns/gsaas-nowhere").exists()
