# SPDX-License-Identifier: Apache-2.0
"""Test doubles of what the API uses: a cloud and an engine that keep everything in memory."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from gsaas import exceptions
from gsaas.cloud.base import Cloud, Owner, Port, Server, ServerStatus
from gsaas.context import RequestContext
from gsaas.db import leases, models
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims
from gsaas.objects import lifecycle
from gsaas.objects.lifecycle import Status
from gsaas.objects.move import Stage
from gsaas.objects.plain_server import PlainServer


class MemoryCloud(Cloud):
    """A cloud whose VMs are entries of a dictionary, and that has one image."""

    IMAGES = ("debian",)

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = tuple(hosts)
        self.servers: dict[str, Server] = {}
        self.plain: dict[str, PlainServer] = {}
        """Servers that their owners have made, by id."""
        self.asked: list[dict[str, Any]] = []
        """The server fields of each server that was made, in order."""
        self.defaults: dict[str, Any] = {}
        """Server fields that callers need not name."""
        self.missing: list[dict[str, Any]] = []
        """What callers have to name, as the error says it."""

    def complete(
        self, context: RequestContext, request: dict[str, Any]
    ) -> tuple[dict[str, Any], list[str]]:
        lacking = [each for each in self.missing if each["field"] not in request]
        if lacking:
            raise exceptions.ServerIncomplete(
                reason="name what is missing", details={"missing": lacking}
            )
        chosen = {name: value for name, value in self.defaults.items() if name not in request}
        return {**request, **chosen}, [f"chosen: {name}" for name in chosen]

    def check(self, context: RequestContext, request: dict[str, Any]) -> list[str]:
        image = request.get("imageRef")
        if image is not None and image not in self.IMAGES:
            raise exceptions.ServerRefused(reason=f"there is no image {image}")
        return [f"{name}: ignored by this cloud" for name in sorted(request) if name != "imageRef"]

    def compute_hosts(self) -> Sequence[str]:
        return self._hosts

    def create(
        self,
        context: RequestContext,
        owner: Owner,
        request: dict[str, Any],
        user_data: str,
        host: str | None,
        avoid: Sequence[str],
    ) -> Server:
        self.check(context, request)
        lease_id = owner.lease_id
        if lease_id not in self.servers:
            chosen = host or next(name for name in self._hosts if name not in avoid)
            port = Port(str(uuid.uuid4()), f"tap{lease_id[:8]}", "fa:16:3e:00:00:01", "10.0.0.5")
            server = Server(str(uuid.uuid4()), ServerStatus.ACTIVE, chosen, port)
            self.servers[lease_id] = server
            self.asked.append(request)
        return self.servers[lease_id]

    def find(self, owner: Owner) -> Server | None:
        return self.servers.get(owner.lease_id)

    def plain_server(self, server_id: str) -> PlainServer | None:
        return self.plain.get(server_id)

    def delete(self, owner: Owner) -> None:
        self.servers.pop(owner.lease_id, None)


class MemoryEngine:
    """An engine that processes leases only when a test calls `settle`, and then all of them."""

    def __init__(self, database: Database, claims: Claims, cloud: MemoryCloud) -> None:
        self._database = database
        self._claims = claims
        self._cloud = cloud
        self.woken: list[tuple[str, str | None]] = []
        """(lease id, project id of the caller) of each notification, in order."""
        self.monitors_notified = 0

    def lease_changed(self, context: RequestContext, lease_id: str) -> None:
        self.woken.append((lease_id, context.project_id))

    def monitor_interval_changed(self, context: RequestContext) -> None:
        self.monitors_notified += 1

    def settle(self) -> None:
        """Process every lease until nothing is left to do."""
        with self._database.read() as session:
            moving = leases.unsettled(session.connection())
        for lease_id in moving:
            self._settle(lease_id)

    def fail(self, lease_id: str, step: str, message: str) -> None:
        """Let *step* of a lease fail permanently."""
        with self._database.write() as session:
            leases.transition(
                session.connection(),
                lease_id,
                lifecycle.Event.FAIL,
                detail=message,
                fault_step=step,
                fault_message=message,
            )
        self._release(lease_id)

    def _settle(self, lease_id: str) -> None:
        with self._database.read() as session:
            lease = leases.get(session.connection(), lease_id)
        if lease.status == Status.CLAIMED and not lease.has_server:
            with self._database.write() as session:
                leases.transition(
                    session.connection(),
                    lease_id,
                    lifecycle.Event.ACTIVATE,
                )
        elif lease.status == Status.CLAIMED:
            self._boot(lease)
        elif lease.status == Status.ACTIVE:
            self._finish_move(lease_id)
        elif lease.status == Status.RELEASING:
            self._release(lease_id)
            with self._database.write() as session:
                leases.transition(
                    session.connection(),
                    lease_id,
                    lifecycle.Event.FINISH,
                )

    def _finish_move(self, lease_id: str) -> None:
        self._claims.switch(lease_id)
        with self._database.write() as session:
            leases.update(session.connection(), lease_id, moving=Stage.ENDING)
        self._claims.end_move(lease_id)

    def _boot(self, lease: models.LeaseRow) -> None:
        context = RequestContext.of(user_id=lease.user_id, project_id=lease.project_id, roles=[])
        server = self._cloud.create(
            context,
            _owner(lease),
            lease.server_request,
            "",
            lease.wanted_host,
            lease.avoided_hosts,
        )
        assert server.port is not None
        where = f"on host {server.host}"
        with self._database.write() as session:
            leases.transition(
                session.connection(),
                lease.id,
                lifecycle.Event.BOOT,
                detail=where,
                server_id=server.id,
                server_host=server.host,
                port_id=server.port.id,
                port_tap=server.port.tap,
                port_mac=server.port.mac,
                port_ip=server.port.ip,
                bound_host=server.host,
            )
            leases.transition(
                session.connection(), lease.id, lifecycle.Event.ACTIVATE, detail=where
            )

    def _release(self, lease_id: str) -> None:
        with self._database.read() as session:
            self._cloud.delete(_owner(leases.get(session.connection(), lease_id)))
        self._claims.release(lease_id)
        with self._database.write() as session:
            leases.update(
                session.connection(),
                lease_id,
                server_id=None,
                bound_host=None,
            )


def _owner(lease: models.LeaseRow) -> Owner:
    return Owner(lease.id, lease.project_id, lease.created_at, lease.server_id)
