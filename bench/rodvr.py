# SPDX-License-Identifier: Apache-2.0
"""How long RODVR takes to install one VM's mappings, beside one `iptables` process per cGPU.

Both work in one network namespace, on an empty node and beside 1,000 VMs of 25 cGPUs. RODVR: a call of `Endpoint.apply`
for a tap that exists, until it returns. iptables: `-t nat -A PREROUTING … -j DNAT` once per cGPU, which translates the
same addresses and isolates no VM; the rules of the other VMs are loaded with one iptables-restore, which is not
measured. For both, the time is the shortest of several rounds, since other work on the machine can only lengthen it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.report import machine
from gsaas.netlink.namespace import entered
from gsaas.objects.address import Address
from gsaas.objects.binding import Binding
from gsaas.rodvr.config import DatapathConfig, Periods
from gsaas.rodvr.endpoint import Endpoint

CGPUS_OF_OTHERS = 25
PORT = 8308
GPU_ADDRESS = "192.168.0.1/16"
"""Of the GPU NIC: the real addresses of all mappings are in its network."""


@dataclass(frozen=True)
class Size:
    """How much is measured, and how often."""

    cgpus: tuple[int, ...] = (1, 25, 50, 75)
    other_vms: tuple[int, ...] = (0, 1000)
    rounds: int = 25
    iptables_rounds: int = 3


QUICK = Size(cgpus=(1, 3), other_vms=(0, 2), rounds=2, iptables_rounds=1)


def run(quick: bool = False) -> dict[str, Any]:
    """Return the milliseconds for every number of cGPUs and of other VMs. *quick* has few of both."""
    size = QUICK if quick else Size()
    rows = [row for others in size.other_vms for row in _beside(others, size)]
    return {
        "bench": "rodvr",
        "machine": {**machine(), "iptables": _output("iptables", "--version")},
        "rows": rows,
        "reach": _bounds({(row["other_vms"], row["cgpus"]): row for row in rows}, size),
    }


def _bounds(rows: dict[tuple[int, int], dict[str, Any]], size: Size) -> list[dict[str, Any]]:
    one, many, others = size.cgpus[0], size.cgpus[-1], size.other_vms[-1]
    alone, crowded = rows[0, many], rows[others, many]
    return [
        {
            "what": f"{many} cGPUs on an empty node: times faster than iptables",
            "value": alone["times_faster"],
            "bound": ">= 100",
        },
        {
            "what": f"{many} cGPUs beside {others:,} VMs: times faster than iptables",
            "value": crowded["times_faster"],
            "bound": ">= 500",
        },
        {
            "what": f"{many} cGPUs on an empty node: times the cost of {one}",
            "value": alone["rodvr_ms"] / rows[0, one]["rodvr_ms"],
            "bound": "<= 4",
        },
    ]


def _beside(others: int, size: Size) -> list[dict[str, Any]]:
    with _node(taps=others + size.rounds) as node:
        periods = Periods(audit=3600, grace=0)
        endpoint = Endpoint("bench", DatapathConfig("gpu0", node), periods=periods)
        endpoint.start()
        try:
            report = endpoint.replace(_binding(vm, CGPUS_OF_OTHERS) for vm in range(others))
            assert not report.problems, report.problems
            rodvr_ms = {
                cgpus: _rodvr(endpoint, node, others, cgpus, size.rounds) for cgpus in size.cgpus
            }
            _preload(node, others)
            iptables_ms = {
                cgpus: _iptables(node, others, cgpus, size.iptables_rounds) for cgpus in size.cgpus
            }
        finally:
            endpoint.teardown()
    return [
        {
            "other_vms": others,
            "cgpus": cgpus,
            "rodvr_ms": rodvr_ms[cgpus],
            "iptables_ms": iptables_ms[cgpus],
            "times_faster": iptables_ms[cgpus] / rodvr_ms[cgpus],
        }
        for cgpus in size.cgpus
    ]


def _rodvr(endpoint: Endpoint, node: str, others: int, cgpus: int, rounds: int) -> float:
    times = []
    for vm in range(others, others + rounds):
        binding = _binding(vm, cgpus)
        begun = time.perf_counter()
        report = endpoint.apply(binding)
        times.append(time.perf_counter() - begun)
        assert report.bindings[binding.port_id].installed, report.problems
        endpoint.remove(binding.port_id)
        while f"in-{binding.tap}" in _output(*_in(node), "nft", "list", "chains", "netdev"):
            time.sleep(0.01)
    return min(times) * 1000


def _iptables(node: str, others: int, cgpus: int, rounds: int) -> float:
    times = []
    with entered(node):  # so that the processes start there, without `ip netns exec` before each
        for turn in range(rounds):
            commands = [
                ["iptables", "-w", "-t", "nat", "-A", "PREROUTING", *_rule(others + turn, cgpu)]
                for cgpu in range(cgpus)
            ]
            begun = time.perf_counter()
            for command in commands:
                subprocess.run(command, check=True)
            times.append(time.perf_counter() - begun)
            if not others:
                subprocess.run(["iptables", "-t", "nat", "-F"], check=True)
    return min(times) * 1000


def _preload(node: str, others: int) -> None:
    if others:
        rules = [
            " ".join(("-A PREROUTING", *_rule(vm, cgpu)))
            for vm in range(others)
            for cgpu in range(CGPUS_OF_OTHERS)
        ]
        text = "\n".join(["*nat", *rules, "COMMIT", ""])
        with entered(node):
            subprocess.run(["iptables-restore", "--noflush"], input=text, text=True, check=True)


def _rule(vm: int, cgpu: int) -> list[str]:
    masked, real = _mapping(vm, cgpu)
    source = f"240.{72 + (vm >> 16)}.{vm >> 8 & 255}.{vm & 255}"
    return [
        *("-i", "rodvr1", "-s", source, "-d", masked.ip, "-p", "tcp", "--dport", str(masked.port)),
        *("-j", "DNAT", "--to-destination", str(real)),
    ]


def _binding(vm: int, cgpus: int) -> Binding:
    return Binding(
        port_id=f"{vm:08x}-0000-4000-8000-000000000000",
        lease_id=f"lease-{vm}",
        tap=_tap(vm),
        mac=f"fa:16:3e:{vm >> 16:02x}:{vm >> 8 & 255:02x}:{vm & 255:02x}",
        ip="10.0.0.5",
        mappings=dict(_mapping(vm, cgpu) for cgpu in range(cgpus)),
    )


def _mapping(vm: int, cgpu: int) -> tuple[Address, Address]:
    host = f"192.168.{50 + (vm + cgpu) % 50}.{1 + (vm * 7 + cgpu) % 250}"
    return Address(f"169.254.71.{1 + cgpu}", PORT), Address(host, PORT + cgpu)


def _tap(vm: int) -> str:
    return f"tap{vm:08x}-00"


@contextmanager
def _node(taps: int) -> Iterator[str]:
    """Make a network namespace with a GPU NIC and *taps* taps, and yield its name.

    Raises `SystemExit` if this process is not root.
    """
    if os.geteuid() != 0:
        raise SystemExit("this benchmark programs nftables in a network namespace: run it as root")
    name = f"rodvr-bench-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        commands = [
            "link set lo up",
            "link add gpu0 type veth peer name gpu1",
            f"address add {GPU_ADDRESS} dev gpu0",
            "link set gpu0 up",
        ]
        commands += [f"tuntap add dev {_tap(vm)} mode tap" for vm in range(taps)]
        batch = "\n".join(commands)
        subprocess.run(["ip", "-n", name, "-batch", "-"], input=batch, text=True, check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def _in(node: str) -> tuple[str, ...]:
    return "ip", "netns", "exec", node


def _output(*command: str) -> str:
    assert shutil.which(command[0]), f"{command[0]} is not installed"
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    json.dump(run(), sys.stdout)
    print()
