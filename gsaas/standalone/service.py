# SPDX-License-Identifier: Apache-2.0
"""The whole service in one process: simulated hosts, their agents, the engine and the API.

Everything is recorded in the state directory before it is made. VMs and their connections to GPUs outlive the process,
even if it is killed, and the next start takes them over; `StateDir.clean` removes all of it.
"""

from __future__ import annotations

import functools
import os
import socket
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Protocol

from oslo_config import cfg

from gsaas import rpc
from gsaas.api.app import create_app
from gsaas.api.auth import TokenFile
from gsaas.api.service import ApiService
from gsaas.api.subscriptions import LeaseSubscriptions
from gsaas.db import endpoints, gpus, migration
from gsaas.db.database import Database
from gsaas.engine.agents import Agents
from gsaas.engine.reconciler import LeaseReconciler
from gsaas.engine.service import Engine
from gsaas.exceptions import KindNotServed
from gsaas.gpgpums.claims import Claims
from gsaas.gpu_host import inventory
from gsaas.gpu_host.agent import Monitor
from gsaas.gpu_host.daemons import factory
from gsaas.gpu_host.daemons.process_runner import ProcessRunner
from gsaas.gpu_host.daemons.service import DaemonService, DaemonSupervisor
from gsaas.gpu_host.daemons.supervisor import Supervisor
from gsaas.gpu_host.fence.control_group import NoControlGroup
from gsaas.gpu_host.gate import Gate
from gsaas.gpu_host.sources.cpu import CpuDevices
from gsaas.grants import keyring
from gsaas.limits.base import UNLIMITED
from gsaas.metrics import counted
from gsaas.netlink.namespace import entered
from gsaas.notifications.emitter import Notifications
from gsaas.objects.device_kinds import CPU, CUDA
from gsaas.objects.gpu_network import GpuNetwork
from gsaas.objects.gpu_report import GpuInfo
from gsaas.remoting.base import RemotingDriver
from gsaas.remoting.drivers import Drivers
from gsaas.rodvr.config import DatapathConfig, Periods
from gsaas.rodvr.endpoint import Endpoint
from gsaas.rodvr.service import EndpointService
from gsaas.rpc import notifiers
from gsaas.rpc.announce import Announcer
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.monitor import MonitorClient
from gsaas.rpc.rodvr import EndpointClient
from gsaas.standalone.cloud import StandaloneCloud
from gsaas.standalone.http_server import HttpServer
from gsaas.standalone.namespaces import Namespaces
from gsaas.standalone.simulated_daemon import SimulatedDaemons
from gsaas.standalone.simulated_gpus import SimulatedGpus
from gsaas.standalone.simulated_supervisor import SimulatedSupervisor
from gsaas.standalone.state_dir import StateDir
from gsaas.standalone.testbed import GPU_DEVICE, Testbed

THREADS = 32
"""Requests that are answered at once, besides long polls."""
CONNECTIONS = 256
"""Clients that may be connected at once, besides those of long polls."""
LARGER_BODIES = 1 << 20
"""By how many bytes a body may be larger than the API reads, to be refused by the API and not by the HTTP server."""
_FIRST_REPORTS_TIMEOUT = 10.0
"""Seconds within which all agents, which run in this process, must have reported once."""


class CannotListen(Exception):
    """The API cannot listen at its address."""


class DaemonsUnusable(Exception):
    """The daemons of a real middleware cannot run here; the text says why, and what to do."""


class _Part(Protocol):
    """A part of the service that has threads of its own."""

    def start(self) -> object: ...

    def stop(self) -> object: ...


class Standalone:
    """Every part of the service. *state* is the state directory that *conf* names, locked by this process."""

    def __init__(self, conf: cfg.ConfigOpts, state: StateDir) -> None:
        """Make all parts and start none.

        Raises `InventoryError`, `TokenFileError`, or `ValueError` for a driver or policy that is not installed.
        """
        self._conf = conf
        self._state = state
        conf.set_default("cgpus", UNLIMITED, group="quotas")  # for the users of one machine
        if not conf.grants.key:
            conf.set_override("key", [state.grant_key()], group="grants")
        self._started = ExitStack()
        """How to stop everything that was started, in reverse order."""
        self._database = Database.connect(conf)
        self._started.callback(self._database.close)
        self._authenticate = TokenFile(state.tokens())
        self._bus = rpc.connect(conf, rpc.IN_PROCESS)
        self._started.callback(self._bus.cleanup)
        self._notifications = Notifications(
            conf, self._database, *notifiers.connect(conf, "gsaas-standalone", rpc.IN_PROCESS)
        )
        self._started.callback(self._notifications.close)
        hosts = inventory.load(conf.standalone.inventory)
        if {host.kind for host in hosts.gpu_hosts} == {CPU}:
            conf.set_default("default_kind", CPU, group="remoting")
        self._drivers = Drivers(conf)

        namespaces = Namespaces(state.path)
        prefix = conf.standalone.prefix
        self._testbed = Testbed(hosts, prefix, namespaces)
        self._gpu_network = GpuNetwork.of([self._testbed.inventory.gpu_network])
        self._cloud = StandaloneCloud(
            self._testbed, prefix, namespaces, state.path, conf.rodvr.masked_prefix
        )
        self._subscriptions = LeaseSubscriptions(conf.queue.long_polls)
        self._announcer = Announcer(EngineClient(self._bus), notify=self._subscriptions.notify)
        self._claims = Claims.from_conf(
            conf,
            self._database,
            self._drivers,
            announce=counted.counting_launches(self._announcer),
            is_client_waiting=self._subscriptions.is_client_waiting,
        )
        self._engine = self._make_engine()
        self._daemons = SimulatedDaemons()
        self._monitors = [self._make_monitor(host) for host in hosts.gpu_hosts]
        self._endpoints = [self._make_endpoint(host.name) for host in hosts.compute_hosts]
        self._api: HttpServer | None = None
        self.failure: str | None = None
        """Why `serve` has returned, unless a signal ended it."""
        self._database.on_storage_failure(self._end)

    def start(self) -> str:
        """Start everything and return the API's URL. The API answers once `serve` runs.

        Raises `CannotListen`; `ForeignNamespace` if another program has a namespace of a required name;
        `InventoryError` if the state directory was used with another inventory or prefix; `TimeoutError` if an agent
        does not report.
        """
        if migration.version(self._database) != migration.head():
            migration.upgrade(self._database)
        url = self._listen()  # first: if the address is taken, nothing must be made
        self._testbed.set_up()
        self._started.callback(self._daemons.stop_all)
        # The engine starts last, so that it stops first: it calls the others.
        parts: list[_Part] = [*self._monitors, *self._endpoints, self._engine]
        for part in parts:
            part.start()
            self._started.callback(part.stop)
        if self._conf.grants.gate_port:
            for host in self._testbed.inventory.gpu_hosts:
                gate = self._make_gate(host)
                gate.start()
                self._started.callback(gate.stop)
        self._wait_for_reports()
        self._state.write_credentials(url)
        return url

    def serve(self) -> None:
        """Answer API requests until a signal handler raises `SystemExit` or `KeyboardInterrupt` in this thread.

        Returns if the disk fails; `failure` then says so.
        """
        if self._api is None:
            raise RuntimeError("call start before serve")
        self._api.serve()

    def stop(self) -> None:
        """Stop all parts in reverse order; VMs and their connections to GPUs stay."""
        self._started.close()

    def _end(self) -> None:
        """End this process, after the answers that are under way: what it writes is lost in a power failure."""
        self.failure = f"{self._state.path} is on a disk that cannot be written; look for the cause, and start again"
        if self._api is not None:
            threading.Thread(target=self._api.close, name="end", daemon=True).start()

    def _listen(self) -> str:
        """Listen at the API's address and return its URL; requests wait until `serve` runs. Raises `CannotListen`."""
        service = ApiService(
            self._conf,
            database=self._database,
            claims=self._claims,
            engine=EngineClient(self._bus),
            cloud=self._cloud,
            drivers=self._drivers,
            subscriptions=self._subscriptions,
            notifications=self._notifications,
        )
        app = create_app(service, self._authenticate)
        listen: str = self._conf.standalone.listen
        host, _, port = listen.rpartition(":")
        try:
            self._api = HttpServer(
                app,
                host,
                int(port),
                threads=THREADS + self._conf.queue.long_polls,
                connections=CONNECTIONS + self._conf.queue.long_polls,
                body_bytes=self._conf.api.max_body_bytes + LARGER_BODIES,
            )
        except OSError as error:
            raise CannotListen(f"cannot listen on {listen}: {error.strerror}") from error
        self._started.callback(self._api.close)
        return f"http://{self._api.host}:{self._api.port}"

    def _make_engine(self) -> Engine:
        agents = Agents(
            EndpointClient(self._bus, self._conf.engine.endpoint_timeout),
            MonitorClient(self._bus),
            self._gpu_network,
        )
        reconciler = LeaseReconciler(
            self._conf,
            database=self._database,
            claims=self._claims,
            cloud=self._cloud,
            remoting=self._drivers.named,
            agents=agents,
            announce=self._announcer.status_changed,
        )
        return Engine(
            self._conf,
            database=self._database,
            bus=self._bus,
            reconciler=reconciler,
            claims=self._claims,
            keyring=keyring.from_conf(self._conf),
            audit=self._notifications.audit,
        )

    def _make_gate(self, host: inventory.HostSpec) -> Gate:
        """Return a gate that listens in the namespace of *host*; the socket stays there when the thread leaves it."""
        with entered(self._testbed.netns(host.name)):
            listener = socket.create_server((host.gpu_address, self._conf.grants.gate_port))
        redeem = functools.partial(EngineClient(self._bus).grant_shown, host.name)
        return Gate(listener, redeem)

    def _make_monitor(self, host: inventory.HostSpec) -> Monitor:
        try:
            driver = self._drivers.of(host.kind)
        except KindNotServed:
            raise inventory.InventoryError(
                f"{host.name} has devices of kind {host.kind}, which [remoting]driver does not serve: set cpu_driver"
            ) from None
        infos = host.gpu_infos(driver.gpu_ports)
        return Monitor(
            self._bus,
            host.name,
            host.gpu_address,
            SimulatedGpus(infos, lambda: self._in_use(infos))
            if host.kind == CUDA
            else CpuDevices(infos, [_cores(host)] * host.gpus),
            daemons=self._make_daemons(host, driver),
            interval=self._conf.monitor.monitor_interval,
            window=self._conf.monitor.utilisation_window,
        )

    def _in_use(self, infos: Sequence[GpuInfo]) -> Collection[str]:
        """Return the UUIDs of these GPUs that leases have claimed."""
        with self._database.read() as session:
            return gpus.leases_on(session, [info.uuid for info in infos])

    def _make_daemons(
        self, host: inventory.HostSpec, driver: RemotingDriver
    ) -> DaemonService | None:
        """Return the daemons of *host*, as threads or as processes; raises `DaemonsUnusable`."""
        settings, netns = driver.daemon_settings, self._testbed.netns(host.name)

        def supervise(service: DaemonService) -> DaemonSupervisor:
            if settings is None or settings.in_process:
                return SimulatedSupervisor(
                    self._daemons,
                    host.name,
                    host.gpu_address,
                    netns=netns,
                    on_change=service.daemons_changed,
                )
            runner = ProcessRunner(
                settings,
                host.name,
                host.gpu_address,
                netns,
                folder=self._state.daemons / host.name,
                tmp_mb=self._conf.daemons.tmp_mb,
            )
            timeouts = factory.timeouts(self._conf)
            return Supervisor(runner, timeouts, runner.watch, service.daemons_changed)

        try:
            return factory.service(
                self._conf,
                self._bus,
                driver,
                host.name,
                host.gpu_address,
                supervise=supervise,
                netns=netns,
            )
        except NoControlGroup as error:
            raise DaemonsUnusable(
                f"daemons of {driver.name} cannot run on {host.name}: {error}"
            ) from error

    def _make_endpoint(self, host: str) -> EndpointService:
        options = self._conf.rodvr
        make = functools.partial(
            Endpoint,
            host,
            DatapathConfig.of(options, GPU_DEVICE, self._testbed.netns(host)),
            gpu_network=self._gpu_network,
            periods=Periods.of(options),
        )
        return EndpointService(
            self._bus,
            host,
            lambda on_installed: make(on_installed=on_installed),
            report_interval=options.audit_interval,
        )

    def _wait_for_reports(self) -> None:
        """Wait until every agent has reported, so that the first request finds all GPUs; raise `TimeoutError`."""
        hosts = self._testbed.inventory
        expected = (sum(host.gpus for host in hosts.hosts), len(hosts.compute_hosts))
        deadline = time.monotonic() + _FIRST_REPORTS_TIMEOUT
        while True:
            with self._database.read() as session:
                found = gpus.totals(session)["gpus"], len(endpoints.page(session, limit=1000))
            if found >= expected:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"of {expected} GPUs and endpoints only {found} have reported")
            time.sleep(0.01)


def _cores(host: inventory.HostSpec) -> int:
    """Return how many of this machine's cores each device of *host* counts as; nothing keeps daemons to these."""
    return max(1, len(os.sched_getaffinity(0)) // host.gpus)
