# SPDX-License-Identifier: Apache-2.0
"""What RODVR costs packets: time to connect, round trip time and throughput, beside plain routing.

A VM and a GPU host are namespaces of the test lab. Connections go through a masked address, and to the daemon's own
address through the VM's gateway, on the same compute host in the same state (connections are tracked there, as on every
host with security groups). For comparison also without RODVR on the host, and so without connection tracking. The paths
take turns, and the median of the rounds' ratios counts, so that a slow moment of the machine affects all of them.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from bench.laboratory import rodvr, routing_lab
from bench.report import machine, median
from gsaas.netlink.namespace import entered
from gsaas.objects.address import Address
from tests.kernel.rodvr.lab import GPU_HOSTS, Lab

SECONDS = 1
ECHO, IPERF = 8400, 5201
MASKED, REAL = "169.254.71.1", GPU_HOSTS["g1"]
MAPPINGS = {Address(MASKED, port): Address(REAL, port) for port in (ECHO, IPERF)}
MEASURES = {
    "connect_us": "microseconds to connect",
    "round_trip_us": "microseconds for 64 bytes there and back",
    "up_gbit": "Gbit/s from the VM",
    "down_gbit": "Gbit/s to the VM",
}


@dataclass(frozen=True)
class Size:
    """How often each thing is measured."""

    rounds: int = 9
    connects: int = 1500
    round_trips: int = 3000


QUICK = Size(rounds=1, connects=20, round_trips=20)


def run(quick: bool = False) -> dict[str, Any]:
    """Return the medians of each path, and of the ratios of masked and plain path. *quick* has one round."""
    size = QUICK if quick else Size()
    taken: dict[str, dict[str, list[float]]] = {
        path: {name: [] for name in MEASURES} for path in ("bare", "plain", "masked")
    }
    with _laboratory() as (lab, vm):
        for turn in range(size.rounds):
            _round(vm, lab, REAL, size, taken["bare"])
            with rodvr(lab, MAPPINGS):
                paths = [("plain", REAL), ("masked", MASKED)]
                for path, ip in paths if turn % 2 else reversed(paths):
                    _round(vm, lab, ip, size, taken[path])
    ratios = {
        name: median(
            [m / p for m, p in zip(taken["masked"][name], taken["plain"][name], strict=True)]
        )
        for name in MEASURES
    }
    return {
        "bench": "path",
        "machine": machine(),
        "rows": [
            {
                "measure": text,
                "without_rodvr": median(taken["bare"][name]),
                "plain_routing": median(taken["plain"][name]),
                "rodvr": median(taken["masked"][name]),
                "ratio": ratios[name],
            }
            for name, text in MEASURES.items()
        ],
        "reach": [
            {
                "what": "throughput from the VM, of plain routing",
                "value": ratios["up_gbit"],
                "bound": ">= 0.90",
            },
            {
                "what": "throughput to the VM, of plain routing",
                "value": ratios["down_gbit"],
                "bound": ">= 0.90",
            },
            {
                "what": "time to connect, of plain routing",
                "value": ratios["connect_us"],
                "bound": "<= 1.15",
            },
        ],
    }


def _round(
    vm: ProcessPoolExecutor, lab: Lab, ip: str, size: Size, results: dict[str, list[float]]
) -> None:
    results["connect_us"].append(vm.submit(_connect, ip, size.connects).result())
    results["round_trip_us"].append(vm.submit(_round_trip, ip, size.round_trips).result())
    results["up_gbit"].append(_throughput(lab, ip))
    results["down_gbit"].append(_throughput(lab, ip, "-R"))


def _connect(ip: str, count: int) -> float:
    """Return the median microseconds of `connect`.

    With a linger time of 0 a connection is closed by a reset, and no socket stays in TIME_WAIT.
    """
    times = []
    for _ in range(count):
        with socket.socket() as stream:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            begun = time.perf_counter()
            stream.connect((ip, ECHO))
            times.append(time.perf_counter() - begun)
    return median(times) * 1e6


def _round_trip(ip: str, count: int) -> float:
    """Return the median microseconds from sending 64 bytes to receiving them back."""
    times = []
    with socket.create_connection((ip, ECHO)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            begun = time.perf_counter()
            stream.send(bytes(64))
            stream.recv(64)
            times.append(time.perf_counter() - begun)
    return median(times) * 1e6


def _throughput(lab: Lab, ip: str, *direction: str) -> float:
    """Return the Gbit/s from the VM; with `-R` to the VM."""
    answer = lab.run("vm1", "iperf3", "-c", ip, "-t", str(SECONDS), "-J", *direction)
    return float(json.loads(answer)["end"]["sum_received"]["bits_per_second"]) / 1e9


def _echo(namespace: str, ready: Connection) -> None:
    """Run an echo server in a namespace, for one client at a time; send to *ready* when it listens."""
    with entered(namespace), socket.create_server(("", ECHO), backlog=4096) as server:
        ready.send(True)
        while True:
            client, _ = server.accept()
            with client:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                try:
                    while data := client.recv(64):
                        client.send(data)
                except ConnectionError:
                    pass


@contextmanager
def _laboratory() -> Iterator[tuple[Lab, ProcessPoolExecutor]]:
    """Yield the lab with both servers running, and an executor whose process is inside the VM."""
    processes = get_context("spawn")
    with routing_lab() as lab, ExitStack() as stack:
        ready, ready_in_server = processes.Pipe()
        server = processes.Process(
            target=_echo, args=(lab.name("g1"), ready_in_server), daemon=True
        )
        stack.callback(server.terminate)
        server.start()
        ready.recv()
        quiet = subprocess.DEVNULL
        iperf = ["ip", "netns", "exec", lab.name("g1"), "iperf3", "-s", "-p", str(IPERF)]
        stack.callback(subprocess.Popen(iperf, stdout=quiet, stderr=quiet).terminate)
        vm = ProcessPoolExecutor(1, processes, _enter_namespace, (lab.name("vm1"),))
        stack.callback(vm.shutdown)
        yield lab, vm


def _enter_namespace(namespace: str) -> None:
    """Move this process into *namespace*, for as long as it runs."""
    _contexts.append(entered(namespace))
    _contexts[0].__enter__()


_contexts: list[Any] = []
"""Keeps the context manager alive: collected, it would leave the namespace."""


if __name__ == "__main__":
    json.dump(run(), sys.stdout)
    print()
