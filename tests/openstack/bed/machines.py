# SPDX-License-Identifier: Apache-2.0
"""The machines that this one pretends to be: GPU hosts, and compute hosts without guests, a network namespace each.

    cloud-gpu1 ─── gpu0, mgmt0 ─┐
    cloud-fake1 ── gpu0, mgmt0 ─┼─ cloud-switch: two bridges
    this machine ─ gpu0, mgmt0 ─┘

The GPU network carries what RODVR forwards, the management network the message bus. This machine is the
controller, and the compute host with the real hypervisor.
"""

from __future__ import annotations

import json

from tests.openstack.bed import commands
from tests.openstack.bed.settings import FAKE_HOSTS, REAL_HOST
from tests.openstack.bed.work import Unit

PREFIX = "cloud-"
SWITCH = f"{PREFIX}switch"
GPU_DEVICE, MANAGEMENT_DEVICE = "gpu0", "mgmt0"
NETWORKS = {GPU_DEVICE: "192.168.50", MANAGEMENT_DEVICE: "192.168.51"}
"""The interface that every machine has on a network -> the first three numbers of its addresses (/24)."""

GPU_HOSTS = ("gpu1", "gpu2")
"""Machines that have GPUs and run no servers."""
CPU_HOST = "cpu1"
"""A machine whose processors and memory are devices."""
NUMBERS = {REAL_HOST: 1} | {
    name: number for number, name in enumerate((*GPU_HOSTS, *FAKE_HOSTS, CPU_HOST), start=11)
}
"""Machine -> the last number of its addresses."""


def units() -> list[Unit]:
    return [Unit("machines", prepare=add)]


def namespace(machine: str) -> str | None:
    """The namespace that is *machine*; None for this one."""
    return None if machine == REAL_HOST else PREFIX + machine


def inside(machine: str) -> tuple[str, ...]:
    """What a command begins with that is to run on *machine*."""
    netns = namespace(machine)
    return ("ip", "netns", "exec", netns) if netns else ()


def gpu_address(machine: str) -> str:
    return f"{NETWORKS[GPU_DEVICE]}.{NUMBERS[machine]}"


def management_address(machine: str) -> str:
    return f"{NETWORKS[MANAGEMENT_DEVICE]}.{NUMBERS[machine]}"


def add() -> None:
    """Make what is missing."""
    _add_namespace(SWITCH)
    for device in NETWORKS:
        if device not in _links(SWITCH):
            _ip(SWITCH, "link", "add", device, "type", "bridge")
        _ip(SWITCH, "link", "set", device, "up")
    for machine, number in NUMBERS.items():
        netns = namespace(machine)
        if netns:
            _add_namespace(netns)
        for device, network in NETWORKS.items():
            _connect(netns, device, f"{device}-{number}")
            _ip(netns, "addr", "replace", f"{network}.{number}/24", "dev", device)


def remove() -> None:
    """Take all of it away; the ends of cables that are here go with the switch."""
    for name in (SWITCH, *(namespace(machine) for machine in NUMBERS)):
        if name in _namespaces():
            commands.run("ip", "netns", "delete", name)


def add_tap(machine: str, name: str) -> None:
    """Have a network interface *name* on *machine*, as a hypervisor makes one for a server.

    The fake hypervisors do not, and without it their servers' GPUs are never connected.
    """
    netns = namespace(machine)
    if name not in _links(netns):
        other_end = "vm" + name.removeprefix("tap")
        _ip(netns, "link", "add", name, "type", "veth", "peer", "name", other_end)
    _ip(netns, "link", "set", name, "up")


def remove_tap(machine: str, name: str) -> None:
    """Take away what `add_tap` made."""
    if name in _links(namespace(machine)):
        _ip(namespace(machine), "link", "delete", name)


def _add_namespace(name: str) -> None:
    if name not in _namespaces():
        commands.run("ip", "netns", "add", name)
    _ip(name, "link", "set", "lo", "up")


def _connect(netns: str | None, device: str, port: str) -> None:
    """Have a cable from *device* of a machine to *port* of the switch."""
    if device not in _links(netns):
        peer = ("peer", "name", port, "netns", SWITCH)
        _ip(netns, "link", "add", device, "type", "veth", *peer)
    _ip(SWITCH, "link", "set", port, "master", port.partition("-")[0], "up")
    _ip(netns, "link", "set", device, "up")


def _namespaces() -> set[str]:
    return {entry["name"] for entry in json.loads(commands.run("ip", "-j", "netns") or "[]")}


def _links(netns: str | None) -> set[str]:
    return {link["ifname"] for link in json.loads(_ip(netns, "-j", "link"))}


def _ip(netns: str | None, *words: str) -> str:
    return commands.run("ip", *(("-n", netns) if netns else ()), *words)
