# SPDX-License-Identifier: Apache-2.0
"""The processes of the control plane: the real classes, put together as their commands do it.

Each function runs in a task of the process that it makes, and returns what others may call there.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import flask
from oslo_config import cfg
from oslo_messaging import server

import gsaas.conf
from gsaas import limits, rpc
from gsaas.api import rbac
from gsaas.api.app import create_app
from gsaas.api.decisions import DecisionCache
from gsaas.api.service import ApiService
from gsaas.api.subscriptions import LeaseSubscriptions
from gsaas.db.stored_leases import StoredLeases
from gsaas.engine import processes as engine_processes
from gsaas.engine.agents import Agents
from gsaas.engine.reconciler import LeaseReconciler
from gsaas.engine.service import Engine
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.plain_servers import PlainServers
from gsaas.gpu_host.agent import Monitor
from gsaas.gpu_host.daemons import factory
from gsaas.gpu_host.daemons.supervisor import Supervisor
from gsaas.grants import keyring
from gsaas.metrics import counted
from gsaas.notifications.emitter import Notifications
from gsaas.objects.device_kinds import CUDA
from gsaas.objects.gpu_network import GpuNetwork
from gsaas.remoting.drivers import Drivers
from gsaas.rodvr.config import DatapathConfig, Periods
from gsaas.rodvr.endpoint import Endpoint
from gsaas.rodvr.service import EndpointService
from gsaas.rpc.announce import Announcer
from gsaas.rpc.api import ApiClient, ApiListener
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.monitor import MonitorClient
from gsaas.rpc.rodvr import EndpointClient
from tests.api import world as api_world
from tests.world import baton, machines
from tests.world.cloud import MemoryCloud
from tests.world.kernel import GPU_DEVICE

if TYPE_CHECKING:
    from tests.world.world import World

SETTINGS = """
[remoting]
driver = simulated
[daemons]
life = {life}
stop_timeout = 5
[engine]
workers = 2
step_timeout = 90
audit_interval = 15
poll_interval = 3
endpoint_timeout = 8
boot_timeout = 120
[monitor]
monitor_interval = 20
[gpgpums]
heartbeat_timeout = 70
min_share_mb = 256
[quotas]
cgpus = {quota}
[grants]
key = k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8
direct = always
"""
QUOTA = 5
"""cGPUs of a project."""


@functools.cache
def configuration(life: str) -> cfg.ConfigOpts:
    """Return the configuration of all processes of a world whose daemons have this *life*."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gsaas.conf")
        path.write_text(SETTINGS.format(life=life, quota=QUOTA), encoding="utf-8")
        conf = gsaas.conf.load(files=[str(path)])
    rpc.connect(conf, rpc.IN_PROCESS).cleanup()  # declares the options of oslo.messaging
    conf.register_opts(server._pool_opts)
    return conf


@functools.cache
def _drivers(life: str) -> Drivers:
    return Drivers(configuration(life))


def api(world: World) -> flask.Flask:
    """An API worker; the answer is its WSGI application."""
    conf, drivers, bus = world.conf, _drivers(world.life), world.bus.connect()
    database = world.database.open()
    subscriptions = LeaseSubscriptions(conf.queue.long_polls)
    subscriptions.on_subscribe = ApiListener(bus, subscriptions.notify).start
    claims = Claims.from_conf(
        conf,
        database,
        drivers,
        announce=counted.counting_launches(
            Announcer(EngineClient(bus), ApiClient(bus), subscriptions.notify)
        ),
        is_client_waiting=subscriptions.is_client_waiting,
    )
    service = ApiService(
        conf,
        database=database,
        claims=claims,
        engine=EngineClient(bus),
        cloud=MemoryCloud(world.nova, world.compute_hosts),
        drivers=drivers,
        subscriptions=subscriptions,
        notifications=Notifications(conf, database, None, None),
    )
    return create_app(service, api_world._token_file())


def _is_gone(name: str) -> bool:
    """Stands for `gsaas.engine.processes.is_gone`: each engine is on a machine of its own."""
    here = baton.here().current.process
    machine, _, life = name.rpartition("-")
    return machine == here.name and life != str(here.life)


def engine(world: World, name: str) -> Engine:
    """An engine that calls itself *name*."""
    conf, drivers, bus = world.conf, _drivers(world.life), world.bus.connect()
    engine_processes.is_gone = _is_gone
    database = world.database.open()
    servers = MemoryCloud(world.nova, world.compute_hosts)
    notifications = Notifications(conf, database, None, None)
    agents = Agents(
        EndpointClient(bus, conf.engine.endpoint_timeout), MonitorClient(bus), GpuNetwork()
    )
    announcer = Announcer(EngineClient(bus), ApiClient(bus))
    claims = Claims.from_conf(
        conf, database, drivers, announce=counted.counting_launches(announcer)
    )
    plain_servers = PlainServers.from_conf(
        conf,
        database,
        claims,
        servers,
        drivers,
        quotas=limits.load(conf),
        stored=StoredLeases(database, conf.api.most_leases_stored),
        may_launch=DecisionCache(rbac.enforcer(conf)).may_launch,
    )
    reconciler = LeaseReconciler(
        conf,
        database=database,
        claims=claims,
        cloud=servers,
        remoting=drivers.named,
        agents=agents,
        engine=name,
        announce=announcer.status_changed,
    )
    made = Engine(
        conf,
        database=database,
        bus=bus,
        reconciler=reconciler,
        claims=claims,
        keyring=keyring.from_conf(conf),
        audit=notifications.audit,
        plain_servers=plain_servers,
    )
    made.start()
    return made


def monitor(world: World, host: str) -> Monitor:
    """The monitor of a GPU host."""
    conf, bus, machine = world.conf, world.bus.connect(), world.gpu_hosts[host]
    runner = machines.MemoryRunner(machine.systemd)
    service = factory.service(
        conf,
        bus,
        _drivers(world.life).of(CUDA),
        host,
        machine.address,
        supervise=lambda owner: Supervisor(
            runner,
            factory.timeouts(conf),
            lambda: machines.MemoryChanges(machine.systemd),
            owner.daemons_changed,
        ),
        netns=host,
    )
    made = Monitor(
        bus,
        host,
        machine.address,
        machine.gpus,
        daemons=service,
        interval=conf.monitor.monitor_interval,
        window=conf.monitor.utilisation_window,
    )
    made.start()
    return made


def endpoint(world: World, host: str) -> EndpointService:
    """The RODVR endpoint of a compute host."""
    options = world.conf.rodvr
    make: Callable[..., Endpoint] = functools.partial(
        Endpoint,
        host,
        DatapathConfig.of(options, GPU_DEVICE, host),
        gpu_network=GpuNetwork.of(["192.168.50.0/24"]),
        periods=Periods.of(options),
    )
    made = EndpointService(
        world.bus.connect(),
        host,
        lambda on_installed: make(on_installed=on_installed),
        report_interval=options.audit_interval,
    )
    made.start()
    return made
