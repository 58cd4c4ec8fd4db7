"""The whole service in one process: simulated hosts, their agents, the engine and the API.

Everything it makes is noted in the state directory before it is made. Stopping, or being killed, leaves VMs and their
connections to GPUs as they are, and the next start takes them up; `clean` removes all of it.
"""

from __future__ import annotations

import functools
import socket
import time
from contextlib import ExitStack

from oslo_config import cfg

from gsaas import limits, rpc
from gsaas.api.app import create_app
from gsaas.api.auth import TokenFile
from gsaas.api.subscriptions import LeaseSubscriptions
from gsaas.db import endpoints, gpus, migration
from gsaas.db.database import Database
from gsaas.engine.driver import LeaseDriver
from gsaas.engine.gpu_hosts import GpuHosts
from gsaas.engine.service import Engine
from gsaas.gpgpums.addresses import MaskedAddresses
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.policy_selection import PolicySelection
from gsaas.gpu_host import inventory
from gsaas.gpu_host.agent import Monitor
from gsaas.gpu_host.daemons import factory
from gsaas.gpu_host.gate import Gate
from gsaas.grants import keyring
from gsaas.netlink.namespace import entered
from gsaas.remoting.base import load as load_remoting
from gsaas.rodvr.endpoint import Endpoint
from gsaas.rodvr.service import EndpointService
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

CONNECTIONS = 256
"""Clients that may be connected at once besides those whose requests are held; further ones wait until one leaves."""
_PATIENCE = 10.0
"""Seconds within which agents in the same process report for the first time."""


class CannotListen(Exception):
    """The API's address is not to be had."""


class Standalone:
    """Every part of the service, on the state directory that *conf* names and this process holds."""

    def __init__(self, conf: cfg.ConfigOpts, state: StateDir) -> None:
        """Raises `InventoryError`, and `TokenFileError` for a token file that cannot be used."""
        self._conf = conf
        self._state = state
        if not conf.grants.key:
            conf.set_override("key", [state.grant_key()], group="grants")
        self._started = ExitStack()
        self._database = Database.connect(conf)
        self._started.callback(self._database.close)
        self._authenticate = TokenFile(state.tokens())
        self._bus = rpc.connect(conf, rpc.IN_PROCESS)
        self._started.callback(self._bus.cleanup)
        self._remoting = functools.cache(functools.partial(load_remoting, conf=conf))
        self._driver = self._remoting(conf.remoting.driver)

        owned = Namespaces(state.path)
        prefix = conf.standalone.prefix
        self._testbed = Testbed(inventory.load(conf.standalone.inventory), prefix, owned)
        self._cloud = StandaloneCloud(
            self._testbed, prefix, owned, state.path, conf.rodvr.masked_prefix
        )
        masked = MaskedAddresses(conf.rodvr.masked_prefix, self._driver.default_port)
        self._subscriptions = LeaseSubscriptions(conf.queue.long_polls)
        self._claims = Claims(
            self._database,
            attempts=conf.gpgpums.claim_attempts,
            heartbeat_timeout=conf.gpgpums.heartbeat_timeout,
            masked=masked,
            quotas=limits.load(conf),
            backfill=conf.queue.backfill,
            client_timeout=conf.queue.client_timeout,
            announce=Announcer(EngineClient(self._bus), ring=self._subscriptions.notify),
            attended=self._subscriptions.is_attended,
            choice=PolicySelection.from_conf(conf),
            utilisation_window=conf.monitor.utilisation_window,
            request_mix=conf.gpgpums.request_mix,
            daemon_ports=self._driver.daemon_ports,
            native=conf.remoting.native,
            local=MaskedAddresses(conf.rodvr.local_prefix, self._driver.default_port),
        )
        self._engine = self._make_engine()
        self._daemons = SimulatedDaemons()
        hosts = self._testbed.inventory
        self._monitors = [self._make_monitor(host) for host in hosts.gpu_hosts]
        self._endpoints = [self._make_endpoint(host.name) for host in hosts.compute_hosts]
        self._api: HttpServer | None = None

    def start(self) -> str:
        """Start everything and return the API's URL. It answers once `serve` runs.

        Raises `CannotListen`; `NotOurs` when a namespace's name is taken; `InventoryError` when the state directory
        belongs to another inventory or prefix.
        """
        if migration.version(self._database) != migration.head():
            migration.upgrade(self._database)
        url = self._listen()
        self._testbed.set_up()
        self._started.callback(self._daemons.stop_all)
        for part in [*self._monitors, *self._endpoints, self._engine]:
            part.start()  # the engine last, so that it stops first: it asks the others
            self._started.callback(part.stop)
        if self._conf.grants.gate_port:
            for host in self._testbed.inventory.gpu_hosts:
                gate = self._make_gate(host)
                gate.start()
                self._started.callback(gate.stop)
        self._await_agents()
        self._state.write_credentials(url)
        return url

    def serve(self) -> None:
        """Answer API requests until `SystemExit` or `KeyboardInterrupt` is raised in this thread."""
        self._api.serve()

    def stop(self) -> None:
        """Stop what was started, last things first; VMs and what connects them to GPUs stay."""
        self._started.close()

    def _listen(self) -> str:
        """Take the API's address and return its URL; requests wait until `serve` runs."""
        app = create_app(
            self._conf,
            database=self._database,
            claims=self._claims,
            engine=EngineClient(self._bus),
            cloud=self._cloud,
            remoting=self._driver,
            authenticate=self._authenticate,
            subscriptions=self._subscriptions,
        )
        listen = self._conf.standalone.listen
        host, _, port = listen.rpartition(":")
        try:
            self._api = HttpServer(
                app,
                host,
                int(port),
                connections=CONNECTIONS + self._conf.queue.long_polls,
                body_bytes=self._conf.api.max_body_bytes,
            )
        except OSError as error:
            raise CannotListen(f"cannot listen on {listen}: {error.strerror}") from error
        self._started.callback(self._api.close)
        return f"http://{self._api.host}:{self._api.port}"

    def _make_engine(self) -> Engine:
        endpoint = EndpointClient(self._bus, self._conf.engine.endpoint_timeout)
        driver = LeaseDriver(
            self._conf,
            database=self._database,
            claims=self._claims,
            cloud=self._cloud,
            remoting=self._remoting,
            endpoint=endpoint,
            gpu_hosts=GpuHosts(self._database, MonitorClient(self._bus)),
        )
        return Engine(
            self._conf,
            database=self._database,
            bus=self._bus,
            endpoint=endpoint,
            driver=driver,
            claims=self._claims,
            keyring=keyring.of(self._conf),
        )

    def _make_gate(self, host: inventory.HostSpec) -> Gate:
        with entered(self._testbed.netns(host.name)):
            listener = socket.create_server((host.gpu_address, self._conf.grants.gate_port))
        return Gate(listener, EngineClient(self._bus).grant_shown)

    def _make_monitor(self, host: inventory.HostSpec) -> Monitor:
        netns = self._testbed.netns(host.name)
        return Monitor(
            self._bus,
            host.name,
            host.gpu_address,
            SimulatedGpus(host.gpu_infos(self._driver.default_port)),
            daemons=factory.service(
                self._conf,
                self._bus,
                self._driver,
                host.name,
                host.gpu_address,
                in_process=lambda service: SimulatedSupervisor(
                    self._daemons,
                    host.name,
                    host.gpu_address,
                    netns=netns,
                    on_change=service.changed,
                ),
                netns=netns,
            ),
            interval=self._conf.monitor.monitor_interval,
            window=self._conf.monitor.utilisation_window,
        )

    def _make_endpoint(self, host: str) -> EndpointService:
        options = self._conf.rodvr
        make = functools.partial(
            Endpoint,
            host,
            GPU_DEVICE,
            netns=self._testbed.netns(host),
            masked_prefix=options.masked_prefix,
            identity_network=options.identity_network,
            local_prefix=options.local_prefix,
            audit_interval=options.audit_interval,
            retry_interval=options.retry_interval,
            farewell=options.farewell,
        )
        return EndpointService(
            self._bus,
            host,
            lambda on_installed: make(on_installed=on_installed),
            report_interval=options.audit_interval,
        )

    def _await_agents(self) -> None:
        """Wait until everybody has reported, so that the first request finds the GPUs."""
        hosts = self._testbed.inventory
        expected = (sum(host.gpus for host in hosts.hosts), len(hosts.compute_hosts))
        deadline = time.monotonic() + _PATIENCE
        while True:
            with self._database.read() as session:
                found = gpus.totals(session)["gpus"], len(endpoints.page(session, limit=1000))
            if found >= expected:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"of {expected} GPUs and endpoints only {found} have reported")
            time.sleep(0.01)
