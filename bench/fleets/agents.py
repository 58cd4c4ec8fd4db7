# SPDX-License-Identifier: Apache-2.0
"""A process that plays the monitors and RODVR endpoints of some hosts, over a real RabbitMQ.

    python -m bench.fleets.agents '{"bus": "rabbit://...", "secret": "...", "first": 0, "hosts": 100, ...}'

The agents are the real ones, `Monitor`, `DaemonService` and `EndpointService`, each with connections, queues, keys and
threads of its own, as in a process of its own. What is played is below them: GPUs with invented readings, daemons that
are healthy at once, a fence and a kernel that only remember what they were told.

It prints `started` when all its agents have started. At each line that it reads it prints, as JSON, which messages it
has sent since the line before. At the end of its input it ends.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from oslo_config import cfg

from gsaas import rpc
from gsaas.conf import agent as agent_options
from gsaas.conf import bus as bus_options
from gsaas.gpu_host.agent import Monitor
from gsaas.gpu_host.daemons.service import DaemonService
from gsaas.objects.binding import Binding, LocalBinding
from gsaas.objects.daemon import (
    Admission,
    Daemon,
    DaemonState,
    DaemonStatus,
    DaemonUsage,
    FenceReport,
)
from gsaas.objects.endpoint_report import BindingReport, ConntrackLevel, EndpointReport, Traffic
from gsaas.objects.gpu_report import GpuInfo
from gsaas.objects.ports import PortRange
from gsaas.remoting.daemon import PER_GPU
from gsaas.rodvr.service import EndpointService
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.signatures import key_of
from gsaas.standalone.simulated_gpus import SimulatedGpus

AT_ONCE = 32
"""Agents of one process that start at the same moment; on hosts of their own all would."""
RESTART_PAUSE = 5.0
"""Seconds after which systemd starts an agent again that could not start."""
SWITCH = 0.1
"""Seconds after which a thread that waits for Python's lock asks for it: hundreds wait at times, and each looks."""
STACK = 256 * 1024
"""Bytes of the stack of each of the many threads."""
CHECK = "nothing"
"""The method of messages that nobody answers, with which an agent sees at its start whether there is a bus."""
MODEL, MEMORY_MB, FIRST_PORT = "NVIDIA L4", 23034, 8308


@dataclass(frozen=True)
class Plan:
    """Which hosts a process plays, and how."""

    bus: str
    secret: str
    first: int
    hosts: int
    gpus: int
    """GPUs of each host."""
    monitor_interval: float
    """Seconds between two reports of GPUs."""
    report_interval: float
    """Seconds between two reports of an endpoint, and of the daemons of a host."""

    def to_argument(self) -> str:
        """Return the plan as the argument of this program."""
        return json.dumps(asdict(self))


def host_name(number: int) -> str:
    """Return the name of a host."""
    return f"gpu{number:05}"


def gpu_address(number: int) -> str:
    """Return the address of a host on the GPU network."""
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def gpus_of(number: int, gpus: int) -> list[GpuInfo]:
    """Return the GPUs of a host."""
    return [
        GpuInfo(f"GPU-{number:05}-{index}", index, MODEL, MEMORY_MB, FIRST_PORT + index)
        for index in range(gpus)
    ]


class PlayedKernel:
    """Has the interface of `gsaas.rodvr.endpoint.Endpoint`, and installs what it is told in no time."""

    def __init__(self, host: str, address: str) -> None:
        self._host, self._address = host, address
        self._lock = threading.Lock()
        self._bindings: set[str] = set()
        self._sent = 0

    def start(self) -> None:
        """Do nothing: there is no kernel to watch."""

    def stop(self) -> None:
        """Do nothing: there is nothing to close."""

    def replace(self, bindings: Iterable[Binding | LocalBinding]) -> EndpointReport:
        """Make *bindings* the only ones."""
        with self._lock:
            self._bindings = {binding.port_id for binding in bindings}
        return self.report()

    def apply(self, binding: Binding | LocalBinding) -> EndpointReport:
        """Install *binding*."""
        with self._lock:
            self._bindings.add(binding.port_id)
        return self._report([binding.port_id])

    def remove(self, port_id: str) -> EndpointReport:
        """Remove the binding of *port_id*."""
        with self._lock:
            self._bindings.discard(port_id)
        return self._report([])

    def report(self, *, traffic: bool = False) -> EndpointReport:
        """Return the report on all bindings, with made-up *traffic* of each."""
        with self._lock:
            level = ConntrackLevel(len(self._bindings), 262144)
            report = self._report(sorted(self._bindings), level)
            self._sent += 2**20
            carried = Traffic(self._sent, self._sent, 2)
            return (
                replace(report, traffic=dict.fromkeys(self._bindings, carried))
                if traffic
                else report
            )

    def _report(
        self, port_ids: Iterable[str], conntrack: ConntrackLevel | None = None
    ) -> EndpointReport:
        installed = {port_id: BindingReport(True, seconds=0.0005) for port_id in port_ids}
        return EndpointReport(self._host, installed, (), self._address, conntrack)


class PlayedDaemons:
    """A `DaemonSupervisor` whose daemons are healthy as soon as they are wanted."""

    def __init__(self) -> None:
        self._statuses: list[DaemonStatus] = []

    def adopt(self) -> None:
        """Do nothing: nothing was left."""

    def start(self) -> None:
        """Do nothing: nothing has to be supervised."""

    def stop(self) -> None:
        """Do nothing."""

    def set_desired(self, daemons: Iterable[Daemon]) -> None:
        """Have exactly these daemons."""
        self._statuses = [DaemonStatus(each, DaemonState.HEALTHY) for each in sorted(daemons)]

    def statuses(self) -> list[DaemonStatus]:
        """Return the status of each daemon."""
        return self._statuses

    def listeners(self) -> Mapping[int, Any]:
        """Return nothing: they have no control groups."""
        return {}

    def usages(self) -> dict[Daemon, DaemonUsage]:
        return {}

    def version(self) -> str | None:
        """Return nothing: no middleware is played."""
        return None

    def problems(self) -> list[str]:
        """Return nothing."""
        return []


class PlayedFence:
    """Has the interface of `gsaas.gpu_host.fence.fence.Fence`."""

    def __init__(self) -> None:
        self._admissions: frozenset[Admission] = frozenset()

    def start(self, ranges: Iterable[Any], listeners: Mapping[int, Any] | None = None) -> None:
        """Do nothing: there are no ports to guard."""

    def stop(self) -> None:
        """Do nothing."""

    def set_ports(self, ranges: Iterable[Any]) -> None:
        """Do nothing."""

    def set_listeners(self, listeners: Mapping[int, Any]) -> None:
        """Do nothing."""

    def apply(self, admissions: Iterable[Admission]) -> None:
        """Admit these, and no others."""
        self._admissions = frozenset(admissions)

    def report(self) -> FenceReport:
        """Return what is admitted."""
        return FenceReport(self._admissions)


@dataclass(frozen=True)
class PlayedSettings:
    """The settings of `gsaas.remoting.daemon.DaemonSettings` that `DaemonService` reads."""

    life: str = PER_GPU
    per_lease: bool = False
    lease_ports: PortRange = PortRange(20000, 29999)  # noqa: RUF009  (immutable)
    ports: int = 1


def connect(plan: Plan, host: str, kind: str) -> rpc.Bus:
    """Return the bus of one agent, connected as the service does that at its start."""
    conf = cfg.ConfigOpts()
    agent_options.register_opts(conf)
    # Its own group: oslo.config keeps values in it, and agents have different keys.
    conf.register_group(cfg.OptGroup("bus"))
    bus_options.register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override("host", host)
    conf.set_override("host_keys", [key_of(plan.secret, rpc.agent_name(kind, host))], "bus")
    bus = rpc.connect(conf, plan.bus, kind)
    rpc.check(bus)
    rpc.prepare_calls(bus)
    return bus


def start_monitor(plan: Plan, number: int) -> None:
    """Start the monitor of a host."""
    host, address = host_name(number), gpu_address(number)
    bus = connect(plan, host, rpc.MONITOR)
    settings: Any = PlayedSettings()
    fence: Any = PlayedFence()
    daemons = DaemonService(
        host,
        EngineClient(bus),
        settings,
        lambda _: PlayedDaemons(),
        fence,
        report_interval=plan.report_interval,
    )
    gpus = gpus_of(number, plan.gpus)
    source: Any = SimulatedGpus(gpus, lambda: {gpu.uuid for gpu in gpus})
    Monitor(bus, host, address, source, daemons=daemons, interval=plan.monitor_interval).start()


def start_endpoint(plan: Plan, number: int) -> None:
    """Start the RODVR endpoint of a host."""
    host = host_name(number)
    bus = connect(plan, host, rpc.RODVR)
    kernel: Any = PlayedKernel(host, gpu_address(number))
    EndpointService(bus, host, lambda _: kernel, plan.report_interval).start()


class Journal:
    """Counts the messages of all agents of this process to the engine, and what became of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._sent: Counter[str] = Counter()
        self._unanswered: Counter[str] = Counter()
        self._seconds: list[float] = []

    def watch(self, send: Callable[..., Any]) -> Callable[..., Any]:
        """Return *send*, a method of `rpc.RpcClient`, so that its calls are counted."""

        def watched(client: rpc.RpcClient, context: Any, method: str, **more: Any) -> Any:
            begun = time.monotonic()
            try:
                answer = send(client, context, method, **more)
            except rpc.BusError:
                self._count(method, begun, answered=False)
                raise
            self._count(method, begun, answered=True)
            return answer

        return watched

    def _count(self, method: str, begun: float, *, answered: bool) -> None:
        if method == CHECK:
            return
        with self._lock:
            self._sent[method] += 1
            self._unanswered[method] += not answered
            self._seconds.append(time.monotonic() - begun)

    def take(self) -> dict[str, Any]:
        """Return what was counted since the last call: messages by method, those without an answer, and seconds."""
        with self._lock:
            taken = {
                "sent": dict(self._sent),
                "unanswered": dict(self._unanswered),
                "seconds": [round(each, 4) for each in self._seconds],
            }
            self._forget()
        return taken


def until_it_starts(start: Callable[[Plan, int], None], plan: Plan, number: int) -> None:
    """Start an agent; again if the bus does not answer in time, as systemd would."""
    while True:
        try:
            return start(plan, number)
        except rpc.BusError:
            time.sleep(RESTART_PAUSE)


def main() -> None:
    """Play the agents until the input ends."""
    plan = Plan(**json.loads(sys.argv[1]))
    journal = Journal()
    rpc.RpcClient.call = journal.watch(rpc.RpcClient.call)  # type: ignore[method-assign]
    rpc.RpcClient.cast = journal.watch(rpc.RpcClient.cast)  # type: ignore[method-assign]
    logging.disable()  # thousands of agents say that they cannot connect
    os.nice(19)  # agents run on other machines, and take no CPU time from a controller
    threading.stack_size(STACK)
    sys.setswitchinterval(SWITCH)
    numbers = range(plan.first, plan.first + plan.hosts)
    with ThreadPoolExecutor(AT_ONCE) as starting:
        started = [
            starting.submit(until_it_starts, start, plan, number)
            for number in numbers
            for start in (start_monitor, start_endpoint)
        ]
    for each in started:
        each.result()
    print("started", flush=True)
    for _ in sys.stdin:
        print(json.dumps(journal.take()), flush=True)
    os._exit(0)  # thousands of threads wait for messages


if __name__ == "__main__":
    main()
