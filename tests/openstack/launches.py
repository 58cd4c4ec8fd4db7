# SPDX-License-Identifier: Apache-2.0
"""Leases on a real Nova, driven in this process: engine and database are the test's, the cloud is the bed's.

Endpoints are a dictionary that says yes, so that a launch needs no RODVR; the end-to-end tests have that.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from openstack.connection import Connection

import gsaas.conf
from gsaas import rpc
from gsaas.cloud.nova.cloud import NovaCloud
from gsaas.context import RequestContext
from gsaas.db import endpoints, gpus, leases, migration, models
from gsaas.db.database import Database
from gsaas.engine import service
from gsaas.engine.agents import Agents
from gsaas.engine.reconciler import LeaseReconciler
from gsaas.objects.binding import Binding
from gsaas.objects.daemon import DesiredState
from gsaas.objects.gpu_report import GpuInfo
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Event, Status
from gsaas.objects.request import Request
from gsaas.remoting.base import load
from gsaas.rpc.engine import EngineClient
from tests.openstack.bed import keystone, messages, settings
from tests.support.scheduling import open_claims

PATIENCE = 600  # seconds
GPU_HOST = settings.FAKE_HOSTS[0]
"""Has GPUs, and is a compute host."""


class Endpoints:
    """What the endpoints of all hosts hold, as they report, and in which order they were told."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.held: dict[str, dict[str, Binding]] = {}
        self.tap_exists = True
        self.told: list[tuple[str, str]] = []

    def apply(self, host: str, binding: Binding, serial: int) -> dict[str, Any]:
        self.held.setdefault(host, {})[binding.port_id] = binding
        self.told.append(("apply", host))
        return self._report(host)

    def remove(self, host: str, port_id: str, serial: int) -> dict[str, Any]:
        self.held.setdefault(host, {}).pop(port_id, None)
        self.told.append(("remove", host))
        return self._report(host)

    def _report(self, host: str) -> dict[str, Any]:
        installed = {"installed": self.tap_exists, "seconds": 0.001 if self.tap_exists else None}
        report = {"bindings": dict.fromkeys(self.held[host], installed)}
        with self._database.write() as session:
            endpoints.register(session, host, report)
        return report

    @property
    def bindings(self) -> dict[str, Binding]:
        """Host -> the one binding it holds."""
        return {host: b for host, held in self.held.items() for b in held.values()}


class _NoMonitors:
    """Nothing here needs a monitor: daemons serve whole GPUs, and nobody fences them."""

    def apply(self, host: str, wanted: DesiredState) -> dict[str, Any]:
        raise AssertionError(f"nobody should tell {host} anything")


class Launches:
    """A GSaaS of one test. *nova_url* is where it finds Nova, if not where the catalogue says."""

    def __init__(
        self, directory: Path, image: str, flavor: str, network: str, nova_url: str | None = None
    ) -> None:
        self.least = {"imageRef": image, "flavorRef": flavor, "networks": [{"uuid": network}]}
        """Server fields of the smallest launch."""
        self.conf = gsaas.conf.load(files=[str(_configuration(directory, nova_url))])
        self.cloud = NovaCloud.configured(self.conf)
        url = f"sqlite:///{directory / 'gsaas.db'}"
        self.database = Database.open(url)
        self.endpoint = Endpoints(self.database)
        migration.upgrade(self.database)
        self.claims = open_claims(self.database, attempts=5, heartbeat_timeout=86400)
        infos = [GpuInfo(f"GPU-{n}", n, "Quadro M4000", 8192, 8308 + n) for n in range(4)]
        with self.database.write() as session:
            gpus.register(session, GPU_HOST, "192.168.50.11", infos)
            for host in (settings.REAL_HOST, *settings.FAKE_HOSTS):
                endpoints.register(session, host, {"bindings": {}})
        self.reconciler = self.engine()
        self._wake: EngineClient | None = None

    def close(self) -> None:
        """Release whatever the test left, and see that nothing of it stays."""
        with self.database.read() as session:
            left = leases.page(session.connection(), limit=100)
        for lease in left:
            if lease.status not in (Status.RELEASING, Status.RELEASED):
                self.release(lease.id)
            self.drive(lease.id, Status.RELEASED)
        self.database.close()

    def engine(self, name: str | None = None) -> LeaseReconciler:
        """Another engine on the same database; without a name, this process."""
        return LeaseReconciler(
            self.conf,
            database=self.database,
            claims=self.claims,
            cloud=self.cloud,
            remoting=lambda name: load(name, self.conf),
            agents=Agents(self.endpoint, _NoMonitors()),
            engine=name,
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """An engine that runs: it listens to Nova, audits, and works by itself."""
        bus = rpc.connect(self.conf, rpc.IN_PROCESS)
        engine = service.Engine(
            self.conf,
            database=self.database,
            bus=bus,
            reconciler=self.reconciler,
            claims=self.claims,
        )
        engine.start()
        self._wake = EngineClient(bus)
        try:
            yield
        finally:
            engine.stop()
            bus.cleanup()

    def tell(self, lease_id: str, owner: RequestContext) -> None:
        """Tell the running engine of a lease, as the API does."""
        self._wake.lease_changed(owner, lease_id)

    def claim(self, owner: RequestContext, locality: str = "any", **fields: Any) -> str:
        """Claim a cGPU for a server of *owner*'s and return the lease's id; nobody is told."""
        lease_id = str(uuid.uuid4())
        lease = Lease(
            status=Status.QUEUED,
            id=lease_id,
            project_id=owner.project_id,
            user_id=owner.user_id,
            name=f"lease-{lease_id[:8]}",
            count=1,
            mode="shared",
            memory_mb=1024,
            locality=locality,
            remoting="simulated",
            server_request={**self.least, **fields},
        )
        return self.claims.claim(lease, Request(1, "shared", 1024, locality)).id

    def launch(self, owner: RequestContext, locality: str = "any", **fields: Any) -> str:
        """Claim, and tell the engine who asked."""
        lease_id = self.claim(owner, locality, **fields)
        self.reconciler.callers.keep(lease_id, owner)
        return lease_id

    def pin(self, lease_id: str, host: str) -> None:
        """Have the server of a lease made on *host*, as if its GPUs were there."""
        with self.database.write() as session:
            leases.update(session.connection(), lease_id, wanted_host=host)

    def release(self, lease_id: str) -> None:
        with self.database.write() as session:
            leases.transition(session.connection(), lease_id, Event.RELEASE)

    def drive(self, lease_id: str, *until: Status) -> models.LeaseRow:
        """Drive a lease until it has one of these statuses and nothing is left to do."""
        deadline = time.monotonic() + PATIENCE
        while True:
            pause = self.turn(lease_id)
            lease = self.lease(lease_id)
            if lease.status in until and pause is None:
                return lease
            assert time.monotonic() < deadline, f"{lease.status}: {lease.fault_message}"

    def turn(self, lease_id: str) -> float | None:
        """Let the engine take the steps it can take now, and wait as long as it asks for."""
        pause = self.reconciler.reconcile(lease_id)
        if pause is not None:
            time.sleep(pause)
        return pause

    def active(
        self, owner: RequestContext, locality: str = "any", **fields: Any
    ) -> models.LeaseRow:
        """Launch a server and drive it until it is ACTIVE; an ERROR is one."""
        lease = self.drive(self.launch(owner, locality, **fields), Status.ACTIVE, Status.ERROR)
        assert lease.status == Status.ACTIVE, lease.fault_message
        return lease

    def failed(
        self, owner: RequestContext, locality: str = "any", **fields: Any
    ) -> models.LeaseRow:
        """Launch a server that must not come to be; it ends in ERROR and leaves nothing."""
        lease = self.drive(self.launch(owner, locality, **fields), Status.ERROR)
        self.check_nothing_is_held(lease.id)
        return lease

    def await_status(self, lease_id: str, status: Status) -> models.LeaseRow:
        """Wait for the running engine to bring a lease there."""
        return self.await_that(lambda: self._with(lease_id, status))

    def await_that(self, ask: Callable[[], Any]) -> Any:
        """Ask until the answer is a true one, and return it."""
        deadline = time.monotonic() + PATIENCE
        while not (answer := ask()):
            assert time.monotonic() < deadline, f"not within {PATIENCE} s"
            time.sleep(1.0)
        return answer

    def lease(self, lease_id: str) -> models.LeaseRow:
        with self.database.read() as session:
            return leases.get(session.connection(), lease_id)

    def check_nothing_is_held(self, lease_id: str) -> None:
        """A lease has no claim, no binding and no server, as far as GSaaS knows; Nova is asked by whoever tests."""
        lease = self.lease(lease_id)
        assert (lease.claims, lease.server_id, lease.bound_host) == ((), None, None)
        assert lease_id not in {binding.lease_id for binding in self.endpoint.bindings.values()}
        with self.database.read() as session:
            assert sum(gpu.used_mb for gpu in gpus.page(session, limit=100)) == 0

    def _with(self, lease_id: str, status: Status) -> models.LeaseRow | None:
        lease = self.lease(lease_id)
        return lease if lease.status == status else None


def caller(user: Connection) -> RequestContext:
    """The context that the API would have made of a request of *user*'s."""
    return RequestContext(
        auth_token=user.session.get_token(),
        user_id=user.current_user_id,
        project_id=user.current_project_id,
        overwrite=False,
    )


def _configuration(directory: Path, nova_url: str | None) -> Path:
    """What an operator writes, with a notification pool of the test's own."""
    user = keystone.client(settings.USER_OF_ENGINES)
    sections = {
        "engine": {"cloud": "nova", "audit_interval": 1},
        "service_user": user,
        "nova": {
            "region_name": user["region_name"],
            "notification_url": messages.url(),
            "notification_pool": f"gsaas-test-{uuid.uuid4()}",
            "poll_interval": 2.0,  # each look at a server costs Neutron three requests, too
            "audit_interval": 86400,  # only notifications tell, unless a test says otherwise
            **({"endpoint_override": nova_url} if nova_url else {}),
        },
        "oslo_messaging_rabbit": {"rabbit_transient_quorum_queue": False},
    }
    path = directory / "gsaas.conf"
    path.write_text(
        "\n".join(
            f"[{section}]\n" + "".join(f"{name} = {value}\n" for name, value in options.items())
            for section, options in sections.items()
        )
    )
    return path
