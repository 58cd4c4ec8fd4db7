# SPDX-License-Identifier: Apache-2.0
"""gsaas-standalone with the daemons of a middleware that is not simulated: units of systemd in its namespaces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.gpu_machine import PACKAGES, REPOSITORY, SOURCE, GpuMachine
from tests.support.waiting import until

pytestmark = pytest.mark.kernel

PYTHON = (
    f"env PYTHONPATH={SOURCE}:{SOURCE}/client:{SOURCE}/{PACKAGES.relative_to(REPOSITORY)} "
    "GSAAS_CREDENTIALS=/run/gsaas/credentials.json /usr/bin/python3 -B"
)
CLIENT = (
    f"{PYTHON} -c 'import sys; from gsaasclient.cli.main import main; sys.exit(main(sys.argv[1:]))'"
)
CONFIGURATION = """\
[remoting]
driver = rcuda
[daemons]
life = per-lease
folder = /opt
command = /usr/bin/python3 -ES /opt/fake_daemon.py {port} {gpu_uuid}
health = simulated
memory_limit = none
own_devices = false
stop_timeout = 1
tmp_mb = 8
"""
STANDALONE = f"{PYTHON} -m gsaas.cli.standalone --config-file=/opt/standalone.conf"
GREETING = "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 9).recv(99).decode())"


class OneMachine:
    """gsaas-standalone in a machine with systemd."""

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine

    def start(self) -> None:
        """Start it as a unit, and wait until it answers."""
        self._machine.type(
            f"systemd-run --quiet --collect --unit=standalone -- {STANDALONE} --log-file=/run/standalone.log"
        )
        until(self._is_up, "the API to answer", patience=240)

    def _is_up(self) -> bool:
        assert "active" in self._machine.type("systemctl is-active standalone || true").stdout, (
            self._machine.type("cat /run/standalone.log; journalctl -u standalone | tail").stdout
        )
        return self._machine.type(f"{CLIENT} list", check=False).returncode == 0

    def stop(self) -> None:
        self._machine.type("systemctl stop standalone || true")

    def gsaas(self, words: str) -> Any:
        """Return what a command answers as JSON."""
        return json.loads(self._machine.type(f"{CLIENT} {words} -f json").stdout)

    def units(self) -> list[str]:
        listed = self._machine.type(
            "systemctl list-units --all --plain --no-legend 'gsaas-standalone:*'"
        ).stdout
        return sorted(line.split()[0] for line in listed.splitlines())

    def clean(self) -> str:
        """Remove everything; return what it complains about."""
        return self._machine.type(f"{STANDALONE} --clean", check=False).stderr

    def greeting(self, vm: str, address: str) -> dict[str, str]:
        """Return what the VM receives at a masked address."""
        ip, _, port = address.partition(":")
        done = self._machine.type(
            f"ip netns exec {vm} /usr/bin/python3 -c '{GREETING}' {ip} {port}"
        )
        return json.loads(done.stdout)

    def vm_of(self, lease: dict[str, Any]) -> str:
        """Return the network namespace of a lease's VM."""
        names = self._machine.type("ls /run/netns").stdout.split()
        return next(name for name in names if name.startswith("gsaas-vm-"))


@pytest.fixture
def one(machine: GpuMachine) -> Iterator[OneMachine]:
    machine.type(f"cat >/opt/standalone.conf <<'END'\n{CONFIGURATION}\nEND")
    one = OneMachine(machine)
    one.start()
    yield one
    one.stop()
    one.clean()
    assert one.units() == []


def test_daemons_run_in_the_namespaces_of_their_hosts_and_outlive_the_process(one):
    lease = one.gsaas("-l -ncgpus=2 -poolmem=512 -mode=shared -hosts=spread")
    units = one.units()
    assert [unit.split(":")[1] for unit in units] == ["gsaas-gpu1", "gsaas-gpu2"]
    vm, masked = one.vm_of(lease), [device["masked_address"] for device in lease["devices"]]
    gpus = [one.greeting(vm, address)["gpu"] for address in masked]
    assert len(set(gpus)) == 2
    one.stop()
    assert one.units() == units
    assert [one.greeting(vm, address)["gpu"] for address in masked] == gpus
    one.start()
    one.gsaas(f"-t -id={lease['id']}")
    until(lambda: one.units() == [], "the daemons to end")


def test_clean_ends_them(one):
    one.gsaas("-l -ncgpus=1")
    assert one.units() != []
    assert "stop it first" in one.clean()
    one.stop()
    assert one.clean() == ""
    assert one.units() == []
