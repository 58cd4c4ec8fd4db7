# SPDX-License-Identifier: Apache-2.0
"""The processes of the control plane: the real classes, put together as their commands do it.

Each function runs in a task of the process that it makes, and returns what others may call there.
"""

from __future__ import annotations

import datetime
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flask
from oslo_config import cfg
from oslo_messaging import server

import gsaas.conf
from gsaas import rpc
from gsaas.api.app import create_app
from gsaas.cli import engine as engine_command
from gsaas.cli import manage
from gsaas.engine import processes as engine_processes
from gsaas.engine.agents import Agents
from gsaas.engine.service import Engine
from gsaas.gpu_host.agent import Monitor
from gsaas.gpu_host.daemons import factory
from gsaas.gpu_host.daemons.supervisor import Supervisor
from gsaas.notifications.emitter import Notifications
from gsaas.objects.device_kinds import CUDA
from gsaas.objects.gpu_network import GpuNetwork
from gsaas.remoting.drivers import Drivers
from gsaas.rodvr.config import DatapathConfig, Periods
from gsaas.rodvr.endpoint import Endpoint
from gsaas.rodvr.service import EndpointService
from gsaas.rpc.monitor import MonitorClient
from gsaas.rpc.rodvr import EndpointClient
from gsaas.verify import gather
from gsaas.verify import rules as verify_rules
from gsaas.verify.facts import NotAsked
from gsaas.verify.rules import Difference
from gsaas.wsgi import deployment
from tests.api import world as api_world
from tests.world import baton, facade, machines
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
idle_warn_after = 300
idle_reclaim_after = 60
gpu_loss_after = 10
audit_interval = 20
poll_interval = 3
endpoint_timeout = 8
boot_timeout = 120
[monitor]
monitor_interval = 30
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
"""The most cGPUs that a project may have."""
SETTLE = 10
"""Seconds for which something has to be different."""


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
    return create_app(deployment.compose(*_parts(world)), api_world._token_file())


def _parts(world: World) -> Any:
    """Return what a controller is composed of."""
    database = world.database.open()
    told = Notifier(world) if world.notifies else None
    return (
        world.conf,
        _drivers(world.life),
        database,
        world.bus.connect(),
        MemoryCloud(world.nova, world.compute_hosts),
        Notifications(world.conf, database, told, told),
    )


class Notifier:
    """Where notifications go: to the list of all of them."""

    publisher_id = "gsaas:world"

    def __init__(self, world: World) -> None:
        self._world = world

    def info(self, _: Any, event_type: str, payload: Any) -> None:
        baton.here().point()
        self._world.notified.append((event_type, payload))

    warn = error = info


def _own_name() -> str:
    """Stands for `gsaas.engine.processes.own_name`: each engine is on a machine of its own."""
    process = baton.here().current.process
    return f"{process.name}-{process.life}"


def _is_gone(name: str) -> bool:
    """Stands for `gsaas.engine.processes.is_gone`."""
    here = baton.here().current.process
    machine, _, life = name.rpartition("-")
    return machine == here.name and life != str(here.life)


def engine(world: World) -> Engine:
    """An engine."""
    engine_processes.own_name, engine_processes.is_gone = _own_name, _is_gone
    made = engine_command.compose(*_parts(world))
    made.start()
    return made


def verify(world: World) -> list[str]:
    """Return what `gsaas-manage verify` finds at two looks, and who did not answer it."""
    conf, _, database, bus, servers, _ = _parts(world)
    agents = Agents(
        EndpointClient(bus, conf.engine.endpoint_timeout), MonitorClient(bus), GpuNetwork()
    )
    silent: list[NotAsked] = []

    def look() -> list[Difference]:
        facts = gather.gather(database, servers, agents)
        silent.extend(facts.not_asked)
        return verify_rules.differences(facts, SETTLE)

    found = look()
    if found:
        baton.here().sleep(SETTLE)
        found = verify_rules.lasting(found, look())
    return [
        *(f"verify: {one.kind} {one.subject}: {one.said}" for one in found),
        *(f"verify: {each.who} does not answer: {each.why}" for each in silent),
    ]


def purge(world: World, keep: float) -> int:
    """Do what `gsaas-manage db purge` does with leases that were released *keep* seconds ago."""
    moment = facade.true_time() - datetime.timedelta(seconds=keep)
    return manage.delete_released(world.database.open(), moment, 10)


def monitor(world: World, host: str) -> Monitor:
    """The monitor of a GPU host."""
    conf, machine = world.conf, world.gpu_hosts[host]
    bus = world.bus.connect(rpc.agent_name(rpc.MONITOR, host))
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
        world.bus.connect(rpc.agent_name(rpc.RODVR, host)),
        host,
        lambda on_installed: make(on_installed=on_installed),
        report_interval=options.audit_interval,
    )
    made.start()
    return made
