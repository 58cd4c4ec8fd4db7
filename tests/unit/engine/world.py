# SPDX-License-Identifier: Apache-2.0
"""A small cloud in memory that can be killed after any effect, and the engine's reconciler in front of it.

The cloud and the endpoints do what the real ones do, in as many separate effects; the database and the claims are
the real ones. A `Fuse` counts effects and, at a given number, kills the engine as `kill -9` would: nothing after that
point runs.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gsaas.conf
from gsaas import exceptions
from gsaas.cloud.base import Cloud, ListedServer, Port, Server, ServerStatus
from gsaas.db import endpoints, gpus, leases, migration, models
from gsaas.db.database import Database
from gsaas.engine.agents import Agents
from gsaas.engine.gpu_hosts import GpuHosts
from gsaas.engine.reconciler import LeaseReconciler
from gsaas.objects.binding import Binding, binding_of
from gsaas.objects.daemon import (
    Admission,
    Daemon,
    DaemonReport,
    DaemonState,
    DaemonStatus,
    DesiredState,
    FenceReport,
)
from gsaas.objects.endpoint_audit import EndpointAudit, KernelDifference
from gsaas.objects.gpu_report import GpuInfo
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Event, Status
from gsaas.objects.plain_server import PlainServer
from gsaas.objects.ports import PortRange
from gsaas.objects.request import Request
from gsaas.remoting.base import load
from gsaas.rodvr.order_serials import OrderSerials, StaleOrderError
from gsaas.rpc.hosts import AgentCallFailed
from tests.support import sqlite
from tests.support.scheduling import LOCAL, open_claims

HOST = "compute1"
HOST_ADDRESS = "192.168.50.21"
GPU_HOST = "gpu1"
SHARE = {"gsaas:ncgpus": "1", "gsaas:poolmem": "4096", "gsaas:mode": "shared"}
"""The properties of plain servers."""


class Killed(BaseException):
    """The process ended here."""


class Fuse:
    """Allows a number of effects; None allows all of them."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.on_effect = lambda: None

    def effect(self) -> None:
        """Count a change outside the process; raises `Killed` after the last one that is allowed."""
        self.on_effect()
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed


class FusedDatabase(Database):
    """Each write is two effects: one before the commit, one after it."""

    fuse: Fuse

    @contextmanager
    def writing(self, **how: bool) -> Iterator[Any]:
        with super().writing(**how) as connection:
            yield connection
            self.fuse.effect()
        self.fuse.effect()


class MemoryCloud(Cloud):
    """Servers as values. Making one and deleting one take several effects each."""

    shelves = True

    def __init__(self, fuse: Fuse) -> None:
        self.fuse = fuse
        self.servers: dict[str, Server] = {}
        self.user_data: dict[str, str] = {}
        self.refusal: str | None = None
        self.is_down = False
        self.plain: dict[str, Server] = {}
        """Servers that their owners have made, by id."""
        self.deleted: list[str | None] = []
        """The servers that somebody asked this cloud to delete."""
        self.shelved: list[str | None] = []
        """The servers that were shelved."""
        self.shelving_refusal: Exception | None = None
        self.initial_status: ServerStatus = ServerStatus.ACTIVE
        self.untagged: set[str] = set()
        """The servers that have lost the tag of their lease."""
        self.tagged: dict[str, ListedServer] = {}
        """Servers that GSaaS did not make, and that have tags of its own, by id."""

    def check(self, context, request):
        return []

    def compute_hosts(self):
        return [HOST]

    def create(self, context, owner, request, user_data, host, avoid):
        self._reach()
        lease_id = owner.lease_id
        if self.refusal:
            raise exceptions.ServerRefused(reason=self.refusal)
        self.fuse.effect()
        server = self.servers.get(lease_id)
        if server is None:
            server = Server(str(uuid.uuid4()), ServerStatus.BUILD, None, None)
            self._put(lease_id, server)
            self.user_data[lease_id] = user_data
        if server.port is None:
            port_id = str(uuid.uuid4())
            port = Port(port_id, f"tap{port_id[:11]}", "fa:16:3e:00:00:05", "10.0.0.5")
            server = replace(server, status=self.initial_status, host=host or HOST, port=port)
            self._put(lease_id, server)
        return server

    def find(self, owner):
        self._reach()
        return self.servers.get(owner.lease_id) or self.plain.get(owner.server_id)

    def plain_server(self, server_id):
        self._reach()
        server = self.plain.get(server_id)
        if server is None:
            return None
        return PlainServer(
            id=server_id,
            project_id="p",
            user_id="u",
            name="web",
            host=server.host,
            is_usable=server.status in (ServerStatus.BUILD, ServerStatus.ACTIVE),
            extra_specs=SHARE,
        )

    def list_servers(self):
        self._reach()
        for lease_id, server in self.servers.items():
            tags = frozenset() if server.id in self.untagged else frozenset({lease_id})
            yield ListedServer(server.id, "p", server.host, tags)
        for server in self.plain.values():
            yield ListedServer(server.id, "p", server.host)
        yield from self.tagged.values()

    def set_tag(self, server_id, lease_id):
        self._reach()
        self.untagged.discard(server_id)

    def remove_tag(self, server_id, lease_id):
        self._reach()
        server = self.tagged[server_id]
        self.tagged[server_id] = replace(server, lease_ids=server.lease_ids - {lease_id})

    def finish_boot(self, lease_id: str) -> None:
        """Let a server that boots become active."""
        self.servers[lease_id] = replace(self.servers[lease_id], status=ServerStatus.ACTIVE)

    def delete(self, owner):
        self._reach()
        self.deleted.append(owner.server_id)
        lease_id = owner.lease_id
        if lease_id in self.servers:
            self._put(lease_id, replace(self.servers[lease_id], status=ServerStatus.BUILD))
            del self.servers[lease_id]
            self.fuse.effect()

    def shelve(self, owner):
        self._reach()
        if self.shelving_refusal:
            raise self.shelving_refusal
        self.shelved.append(owner.server_id)
        server = self.servers[owner.lease_id]
        self._put(owner.lease_id, replace(server, status=ServerStatus.SHELVED, host=None))

    def _reach(self) -> None:
        if self.is_down:
            raise exceptions.CloudUnavailable(reason="the cloud does not answer")

    def _put(self, lease_id: str, server: Server) -> None:
        self.servers[lease_id] = server
        self.fuse.effect()


class MemoryEndpoint:
    """The endpoints of all hosts: their bindings, and whether they answer."""

    def __init__(self, fuse: Fuse) -> None:
        self.fuse = fuse
        self.bindings_by_host: dict[str, dict[str, Binding]] = {}
        self.tap_exists = True
        self.answers = True
        self.calls: list[tuple[str, str, str]] = []
        self.open_connections: int | None = 0
        """Of any port."""
        self.before_apply: Callable[[], None] = lambda: None
        """Called when an engine has decided on a binding, and before that arrives."""
        self._serials: defaultdict[str, OrderSerials] = defaultdict(OrderSerials)
        self.kernel: dict[str, list[KernelDifference]] = {}
        """Host -> how its kernel differs from its bindings."""

    def apply(self, host: str, binding: Binding, serial: int) -> dict[str, Any]:
        self.before_apply()
        self._reach(host)
        self._begin(host, binding.port_id, serial)
        self.calls.append(("apply", host, binding.port_id))
        self.bindings_by_host.setdefault(host, {})[binding.port_id] = binding
        self.fuse.effect()
        seconds = 0.004 if self.tap_exists else None
        installed = {"installed": self.tap_exists, "seconds": seconds}
        return {"bindings": {binding.port_id: installed}}

    def remove(self, host: str, port_id: str, serial: int) -> dict[str, Any]:
        self._reach(host)
        self._begin(host, port_id, serial)
        self.calls.append(("remove", host, port_id))
        self.bindings_by_host.get(host, {}).pop(port_id, None)
        self.fuse.effect()
        return {"bindings": {}}

    def audit(self, host: str, *, repair: bool = False) -> EndpointAudit:
        self._reach(host)
        bindings = self.bindings_by_host.get(host, {}).values()
        audit = EndpointAudit(tuple(bindings), tuple(self.kernel.get(host, ())))
        if repair:
            self.kernel.pop(host, None)
        return EndpointAudit.from_dict(json.loads(json.dumps(audit.to_dict())))

    def connections(self, host: str, port_id: str) -> int | None:
        self._reach(host)
        return self.open_connections

    @property
    def bindings(self) -> list[Binding]:
        return [
            binding for by_port in self.bindings_by_host.values() for binding in by_port.values()
        ]

    def _begin(self, host: str, port_id: str, serial: int) -> None:
        try:
            self._serials[host].check(port_id, serial)
        except StaleOrderError as error:
            raise AgentCallFailed(str(error)) from error
        self._serials[host].record(port_id, serial)

    def _reach(self, host: str) -> None:
        self.fuse.effect()
        if not self.answers:
            raise AgentCallFailed(f"the endpoint of {host} does not answer")


class MemoryMonitor:
    """The monitors of all GPU hosts, whose daemons start and end when a test says so."""

    def __init__(self, fuse: Fuse) -> None:
        self.fuse = fuse
        self.answers = True
        self.silent: set[str] = set()
        """Hosts whose monitors do not answer, while those of others do."""
        self.fenced = True
        self.initial_state = DaemonState.HEALTHY
        """The state of a new daemon."""
        self.ends_daemons = True
        """A daemon that is not desired any more is gone at once."""
        self.changes_fence = True
        """The kernel changes the fence as the monitor asks it to."""
        self.fences: dict[str, frozenset[Admission]] = {}
        self.desired: dict[str, DesiredState] = {}
        self.daemons: dict[str, dict[str, DaemonStatus]] = {}

    def apply(self, host: str, state: DesiredState) -> dict[str, Any]:
        self.fuse.effect()
        if not self.answers or host in self.silent:
            raise AgentCallFailed(f"the monitor of {host} does not answer")
        state = DesiredState.from_dict(json.loads(json.dumps(state.to_dict())))
        if host not in self.desired or state.serial > self.desired[host].serial:
            self.desired[host] = state
            self._reconcile(host)
            self.fuse.effect()
        return self.report(host)

    def _reconcile(self, host: str) -> None:
        if self.changes_fence:
            self.fences[host] = self.desired[host].admissions
        running = self.daemons.setdefault(host, {})
        desired = {daemon.key: daemon for daemon in self.desired[host].daemons}
        for key in running.keys() - desired.keys():
            if self.ends_daemons:
                del running[key]
            else:
                running[key] = DaemonStatus(running[key].daemon, DaemonState.DRAINING)
        for key, daemon in desired.items():
            if key not in running or running[key].daemon != daemon:
                running[key] = DaemonStatus(daemon, self.initial_state)

    def audit(self, host: str) -> dict[str, Any]:
        self.fuse.effect()
        if not self.answers or host in self.silent:
            raise AgentCallFailed(f"the monitor of {host} does not answer")
        return self.report(host)

    def end_draining(self) -> None:
        """Let every daemon end that is draining."""
        self.ends_daemons = True
        for host in self.desired:
            self._reconcile(host)

    def set_state(
        self,
        host: str,
        state: DaemonState,
        detail: str | None = None,
        restarts: int = 0,
        failed_starts: int = 0,
    ) -> None:
        """Set the state of every daemon of *host*."""
        for key, condition in self.daemons[host].items():
            status = DaemonStatus(condition.daemon, state, restarts, detail, failed_starts)
            self.daemons[host][key] = status

    def report(self, host: str) -> dict[str, Any]:
        serial = self.desired[host].serial
        fence = FenceReport(self.fences[host]) if self.fenced else None
        report = DaemonReport(serial, list(self.daemons[host].values()), fence).to_dict()
        return json.loads(json.dumps(report))

    @property
    def running(self) -> set[Daemon]:
        """Every daemon that runs anywhere."""
        return {each.daemon for conditions in self.daemons.values() for each in conditions.values()}

    @property
    def admitted(self) -> set[Admission]:
        """Every admission of any fence."""
        return {each for admissions in self.fences.values() for each in admissions}


def create_database(path: Path) -> None:
    """Make a database file with one GPU host and one compute host."""
    database = Database.open(f"sqlite:///{path}")
    migration.upgrade(database)
    infos = [GpuInfo(f"GPU-{n}", n, "Quadro M4000", 8192, 8308 + n) for n in range(2)]
    with database.write() as session:
        gpus.register(session, "gpu1", "192.168.50.11", infos)
        endpoints.register(session, HOST, {"bindings": {}, "gpu_address": HOST_ADDRESS})
    database.close()


class World:
    """One GPU host, one compute host, and leases reconciled by as many engines as it takes."""

    def __init__(self, database: Path, ports: PortRange | None = None) -> None:
        """*database* is a copy of what `create_database` made; with *ports*, cGPUs have daemons of their own."""
        self.fuse = Fuse()
        self.fuse.on_effect = self.check_safety
        self.conf = gsaas.conf.load(files=[])
        self.conf.set_override("driver", "simulated", "remoting")
        self.database = sqlite.opened(f"sqlite:///{database}", FusedDatabase)
        self.database.fuse = self.fuse
        self.claims = open_claims(
            self.database,
            attempts=5,
            local=LOCAL,
            daemon_ports={"simulated": ports} if ports else {},
        )
        self.monitor = MemoryMonitor(self.fuse)
        self.gpu_hosts = GpuHosts(self.database, self.monitor)
        self.cloud = MemoryCloud(self.fuse)
        self.endpoint = MemoryEndpoint(self.fuse)
        self.announced: list[str] = []
        """The leases whose new status was announced, each as often as that happened."""

    def close(self) -> None:
        self.database.close()

    def launch(self, **server_request: Any) -> str:
        return self._claim(Request(1, "shared", 4096), server_request=server_request)

    def launch_with_ports(self, number: int) -> str:
        """Launch a lease whose daemon has so many ports."""
        request = Request(1, "shared", 4096, ports_per_daemon=number)
        return self._claim(request, requirements=request.stored_requirements())

    def launch_with_one_daemon(self) -> str:
        """Launch a lease with two cGPUs that one daemon serves."""
        request = Request(2, "shared", 2048, one_daemon=True)
        return self._claim(request, requirements=request.stored_requirements())

    def alloc(self, consumer_host: str | None = HOST, uid: int | None = 1000) -> str:
        """A lease without a server, for a consumer on that host."""
        request = Request(1, "shared", 4096, consumer_host=consumer_host)
        return self._claim(request, has_server=False, consumer_host=consumer_host, consumer_uid=uid)

    def _claim(self, request: Request, **columns: Any) -> str:
        lease_id = str(uuid.uuid4())
        lease = Lease(
            status=Status.QUEUED,
            id=lease_id,
            project_id="p",
            user_id="u",
            name="n",
            remoting="simulated",
            **request.to_dict(),
            **columns,
        )
        return self.claims.claim(lease, request).id

    def release(self, lease_id: str) -> None:
        with self.database.write() as session:
            leases.transition(session.connection(), lease_id, Event.RELEASE)

    def reconcile(self, lease_id: str) -> float | None:
        """Let a new engine execute all the steps that can be executed now."""
        return self.engine().reconcile(lease_id)

    def engine(self, name: str | None = None) -> LeaseReconciler:
        """A new engine: this process, or another one by that name."""
        return LeaseReconciler(
            self.conf,
            database=self.database,
            claims=self.claims,
            cloud=self.cloud,
            remoting=lambda name: load(name, self.conf),
            agents=Agents(self.endpoint, self.monitor),
            engine=name,
            announce=self.announced.append,
        )

    def drive_until_killed(self, lease_id: str, effects: int) -> bool:
        """Kill the engine after this number of effects; return False if it had finished before."""
        self.fuse.left = effects
        try:
            self.reconcile(lease_id)
        except Killed:
            return True
        finally:
            self.fuse.left = None
        return False

    def lease(self, lease_id: str) -> models.LeaseRow:
        with self.database.read() as session:
            return leases.get(session.connection(), lease_id)

    def age(self, lease_id: str, seconds: float) -> None:
        """Have a lease be claimed that much earlier."""
        with self.database.write() as session:
            lease = leases.get(session.connection(), lease_id)
            ago = datetime.timedelta(seconds=seconds)
            leases.update(
                session.connection(),
                lease_id,
                created_at=lease.created_at - ago,
                claimed_at=lease.claimed_at - ago,
            )

    def events(self, lease_id: str) -> list[str]:
        with self.database.read() as session:
            return [event.event for event in leases.events(session.connection(), lease_id)]

    def used_mb(self) -> int:
        with self.database.read() as session:
            return sum(gpu.used_mb for gpu in gpus.page(session, limit=100))

    def check_safety(self) -> None:
        """Check that no endpoint and no daemon serves a GPU that its lease has given back."""
        for binding in self.endpoint.bindings:
            with self.database.read() as session:
                lease = leases.get(session.connection(), binding.lease_id)
                assert lease.claims, f"{binding} outlived its claims"
                assert lease.bound_host, f"{binding} is unknown to the database"
        for daemon in self.monitor.running:
            with self.database.read() as session:
                lease = leases.get(session.connection(), daemon.lease_id)
                ports = [claim.daemon_port for claim in lease.all_claims]
                assert daemon.port in ports, f"{daemon} outlived its claim"

    def check_active(self, lease_id: str) -> None:
        """A lease is ACTIVE, with one server and exactly its binding."""
        lease = self.lease(lease_id)
        assert lease.status == Status.ACTIVE, self.events(lease_id)
        assert list(self.cloud.servers) == [lease_id]
        assert lease.server_id == self.cloud.servers[lease_id].id
        with self.database.read() as session:
            expected = binding_of(leases.get(session.connection(), lease_id))
        assert self.endpoint.bindings_by_host == {HOST: {lease.port_id: expected}}
        assert self.used_mb() == 4096

    def check_nothing_is_left(self, lease_id: str, status: Status) -> None:
        """A lease is over, and nothing of it is anywhere."""
        lease = self.lease(lease_id)
        assert lease.status == status, self.events(lease_id)
        assert (lease.claims, lease.server_id, lease.bound_host) == ((), None, None)
        assert self.cloud.servers == {}
        assert self.endpoint.bindings == []
        assert self.monitor.running == set()
        assert self.monitor.admitted == set()
        assert self.used_mb() == 0
        with self.database.read() as session:
            assert leases.unsettled(session.connection()) == []
