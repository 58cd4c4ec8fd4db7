# SPDX-License-Identifier: Apache-2.0
"""A GPU host in a machine with systemd whose devices are parts of its processors and memory, with ggml's daemons.

The test is its engine, over a real message bus in the network of the machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gsaas.conf
from gsaas import rpc
from gsaas.gpu_host.daemons import unit
from gsaas.objects.daemon import Admission, Daemon, DaemonState, DesiredState
from gsaas.objects.gpu_report import GpuReport
from gsaas.rpc.monitor import MonitorClient
from tests.support import ggml
from tests.support.waiting import PATIENCE, until

if TYPE_CHECKING:
    from tests.kernel.devstack.machine import Machine
    from tests.support.gpu_machine import GpuMachine

SHARE = 256
"""MiB of each cGPU."""


class Engine:
    """What the monitor reports to, and what it is told."""

    target = rpc.Target(version="1.1")

    def __init__(self) -> None:
        self.desired = DesiredState(0)
        self.report: GpuReport | None = None
        self.daemons: dict[str, Any] = {}

    def daemons_started(self, context: object, host: str) -> dict[str, Any]:
        return self.desired.to_dict()

    def daemons_report(self, context: object, host: str, report: dict[str, Any]) -> None:
        self.daemons = report

    def monitor_report(self, context: object, host: str, report: dict[str, Any]) -> dict[str, Any]:
        self.report = GpuReport.from_dict(report)
        return {"monitor_interval": None}


class CpuHost:
    """A GPU host whose devices are cores and memory, its engine, and programs on its devices."""

    def __init__(
        self, machine: Machine | GpuMachine, host: str, engine: Engine, bus: rpc.Bus
    ) -> None:
        self.machine = machine
        self.engine = engine
        self._host = host
        self._monitor = MonitorClient(bus, timeout=PATIENCE)
        self._programs: list[subprocess.Popen[str]] = []

    def await_report(self) -> None:
        """Wait until its monitor has told which devices it has."""
        until(lambda: self.engine.report is not None, "the first report")

    @property
    def devices(self) -> list[str]:
        """Their UUIDs."""
        assert self.engine.report is not None
        return [gpu.uuid for gpu in self.engine.report.snapshot.gpus]

    def lease(self, first_port: int, devices: int = 2) -> list[Daemon]:
        """Return the daemons of a new lease, of which the first is on the first device."""
        lease_id = str(uuid.uuid4())
        return [
            Daemon(device, first_port + position, SHARE, lease_id, position)
            for position, device in enumerate(self.devices[:devices])
        ]

    def have(self, *daemons: Daemon) -> None:
        """Have these daemons and no other run, and admit this machine to them."""
        admissions = frozenset(Admission("127.0.0.1", daemon.port) for daemon in daemons)
        self.tell(frozenset(daemons), admissions)

    def tell(self, daemons: frozenset[Daemon], admissions: frozenset[Admission]) -> None:
        self.engine.desired = DesiredState(self.engine.desired.serial + 1, daemons, admissions)
        self._monitor.apply(self._host, self.engine.desired)
        until(lambda: self._healthy() == {daemon.key for daemon in daemons}, self._statuses)

    def run(self, daemons: list[Daemon], *options: str) -> subprocess.Popen[str]:
        """Run a program that multiplies matrices on these, in the network of the machine."""
        addresses = ",".join(f"127.0.0.1:{daemon.port}" for daemon in daemons)
        environment = {"PYTHONPATH": str(ggml.FOLDER), "LLAMA_ARG_RPC": addresses}
        return self.begin(environment, ggml.PROGRAM, *options)

    def begin(self, environment: Mapping[str, str], *words: str | Path) -> subprocess.Popen[str]:
        """Have Python run a program in the network of the machine."""
        usual = {
            "PYTHONSAFEPATH": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "GGML_NO_BACKTRACE": "1",
        }
        program = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "--", sys.executable, *words],
            env={**os.environ, **usual, **environment},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._programs.append(program)
        return program

    def results(self, program: subprocess.Popen[str]) -> list[dict[str, Any]]:
        """Wait for the end of a program; return what it tells."""
        printed, _ = program.communicate()
        return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]

    def pid(self, daemon: Daemon) -> int:
        return int(self.machine.show(unit.name(daemon.key), "MainPID"))

    def reset(self) -> None:
        for program in self._programs:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        self._programs.clear()
        self.have()

    def _healthy(self) -> set[str]:
        statuses = self.engine.daemons.get("daemons", {})
        return {key for key, each in statuses.items() if each["state"] == DaemonState.HEALTHY}

    def _statuses(self) -> str:
        return f"all daemons to be healthy; {self.engine.daemons}"


@contextmanager
def engine_of(
    machine: Machine | GpuMachine, host: str, bus_url: str, secret: str | None = None
) -> Iterator[CpuHost]:
    """Be the engine of *host*, to whose monitor messages are signed if there is a *secret*."""
    conf = gsaas.conf.load(files=[])
    if secret is not None:
        conf.set_override("secrets", [secret], group="bus")
    bus = rpc.connect(conf, bus_url)
    engine = Engine()
    server = rpc.server(bus, rpc.ENGINE, "engine-1", engine, lambda *_: True)
    server.start()
    try:
        yield CpuHost(machine, host, engine, bus)
    finally:
        server.stop()
        server.wait()
        bus.cleanup()


def right(results: list[dict[str, Any]], cgpus: int = 2) -> bool:
    """Return whether each cGPU has multiplied, and never wrong."""
    return [each["cgpu"] for each in sorted(results, key=lambda each: each["cgpu"])] == list(
        range(cgpus)
    ) and all(
        each["products"] > 0 and each["largest_error"] < 1e-3 and "error" not in each
        for each in results
    )
