# SPDX-License-Identifier: Apache-2.0
"""Nova in memory: slow, and now and then it refuses, forgets, fails, or does what nobody of GSaaS asked for.

`Nova` outlives all processes; each process has a `MemoryCloud`, a cloud driver in front of it.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gsaas import exceptions
from gsaas.cloud.base import (
    Cloud,
    ListedServer,
    Owner,
    Port,
    Server,
    ServerChange,
    ServerStatus,
)
from gsaas.context import RequestContext
from gsaas.objects.plain_server import PlainServer
from tests.world import baton, facade
from tests.world.baton import Process
from tests.world.kernel import HostKernel


@dataclass
class Weather:
    """How likely it is, 0 to 1, that something happens to a request or a server."""

    lost_request: float = 0.0
    """Nova does not answer, and has done nothing."""
    lost_answer: float = 0.0
    """Nova does not answer, and has done it, or does it a little later."""
    refuses: float = 0.0
    """Nova makes no such server."""
    fails: float = 0.0
    """A new server ends in ERROR."""
    slow: float = 0.0
    is_away: bool = False


@dataclass(eq=False)
class Instance:
    """A server as Nova has it."""

    server: Server
    tag: str | None
    project_id: str
    user_data: str
    changed_at: datetime.datetime
    extra_specs: Mapping[str, str]
    name: str = "vm"


class Nova:
    """The servers of one world, on the hosts of *kernels*."""

    def __init__(self, kernels: Mapping[str, HostKernel], tell: Callable[[str], None]) -> None:
        self.weather = Weather()
        self.servers: dict[str, Instance] = {}
        self.removed: dict[str, Instance] = {}
        """Servers that were deleted."""
        self._kernels = kernels
        self._tell = tell
        self._process = Process("nova")
        self._addresses = 0

    def boot(
        self,
        tag: str | None,
        project_id: str,
        user_data: str,
        host: str,
        extra_specs: Mapping[str, str] | None = None,
        fails: bool = False,
    ) -> Instance:
        """Make a server, which is ACTIVE, or in ERROR, a little later."""
        self._addresses += 1
        number = self._addresses
        port_id = str(uuid.uuid4())
        mac = f"fa:16:3e:00:{number // 256:02x}:{number % 256:02x}"
        port = Port(port_id, f"tap{port_id[:11]}", mac, f"10.0.{number // 250}.{number % 250 + 2}")
        server = Server(str(uuid.uuid4()), ServerStatus.BUILD, None, port)
        made = Instance(
            server, tag, project_id, user_data, facade.true_time(), dict(extra_specs or {})
        )
        self.servers[server.id] = made
        baton.here().spawn("boot", lambda: self._boot(made, host, fails), self._process)
        return made

    def _boot(self, made: Instance, host: str, fails: bool) -> None:
        scheduler = baton.here()
        scheduler.sleep(1 + 10 * scheduler.chance.random())
        if made.server.id not in self.servers:
            return
        if fails:
            now = facade.true_time()
            self.change(
                made,
                status=ServerStatus.ERROR,
                fault="no valid host was found",
                failed_at=now,
                port=None,
            )
            return
        if made.server.port is not None:
            self._kernels[host].add_link(made.server.port.tap)
        self.change(made, status=ServerStatus.ACTIVE, host=host)

    def change(self, made: Instance, **changes: Any) -> None:
        made.server = replace(made.server, **changes)
        made.changed_at = facade.true_time()

    def remove(self, server_id: str) -> None:
        """Delete a server with its port."""
        made = self.servers.pop(server_id, None)
        if made is not None:
            self._unplug(made)
            made.changed_at = facade.true_time()
            self.removed[server_id] = made

    def _unplug(self, made: Instance) -> None:
        server = made.server
        if server.host is not None and server.port is not None:
            self._kernels[server.host].remove_link(server.port.tap)

    def move(self, made: Instance, host: str) -> None:
        """Migrate a server that runs."""
        if made.server.port is not None:
            self._kernels[host].add_link(made.server.port.tap)
        self._unplug(made)
        self.change(made, host=host)

    def resize(self, made: Instance, host: str) -> None:
        """Stop a server, and boot it on another host."""
        self._unplug(made)
        self.change(made, host=host)
        baton.here().spawn("boot", lambda: self._plug(made), self._process)

    def _plug(self, made: Instance) -> None:
        baton.here().sleep(5 * baton.here().chance.random())
        server = made.server
        if self.servers.get(server.id) is made and server.host and server.port:
            kernel = self._kernels[server.host]
            if server.port.tap not in kernel.links:
                kernel.add_link(server.port.tap)

    def rebuild(self, made: Instance) -> None:
        """Give a server a new tap of the same name, as a rebuild and a hard reboot do."""
        server = made.server
        if server.host is not None and server.port is not None:
            self._kernels[server.host].remove_link(server.port.tap)
            self._kernels[server.host].add_link(server.port.tap)
        self.change(made)

    def shelve(self, made: Instance) -> None:
        self._unplug(made)
        self.change(made, status=ServerStatus.SHELVED, host=None)

    # -- requests -------------------------------------------------------------------------------------

    def request(self, what: str, act: Callable[[], Any], *, changes: bool = False) -> Any:
        """Carry out a request of a process, which *changes* something or not; raises `CloudUnavailable`."""
        scheduler, weather = baton.here(), self.weather
        scheduler.point()
        chance = scheduler.chance
        if chance.random() < weather.slow:
            scheduler.sleep(20 * chance.random())
        if weather.is_away or chance.random() < weather.lost_request:
            self._tell(f"Nova does not answer: {what}")
            raise exceptions.CloudUnavailable(reason=f"{what}: no answer")
        result = act()
        if changes:
            scheduler.effect("server")
        else:
            scheduler.point()
        if chance.random() < weather.lost_answer:
            self._tell(f"Nova has done it, and does not answer: {what}")
            raise exceptions.CloudUnavailable(reason=f"{what}: no answer")
        return result


class MemoryCloud(Cloud):
    """The cloud driver of one process."""

    shelves = True

    def __init__(self, nova: Nova, hosts: Sequence[str]) -> None:
        self._nova = nova
        self._hosts = tuple(hosts)

    def check(self, context: RequestContext, request: dict[str, Any]) -> list[str]:
        def act() -> list[str]:
            if request.get("imageRef") == "none":
                raise exceptions.ServerRefused(reason="there is no such image")
            return []

        found: list[str] = self._nova.request("check a server", act)
        return found

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
        nova = self._nova
        chance = baton.here().chance
        if not owner.untried and (found := self.find(owner)) is not None:
            return found

        def act() -> Server:
            if chance.random() < nova.weather.refuses:
                raise exceptions.ServerRefused(reason="the quota of servers is exceeded")
            possible = [name for name in self._hosts if name not in avoid]
            chosen = host or possible[int(chance.random() * len(possible))]
            fails = chance.random() < nova.weather.fails
            return nova.boot(
                owner.lease_id, owner.project_id, user_data, chosen, fails=fails
            ).server

        made: Server = nova.request("create a server", act, changes=True)
        return made

    def find(self, owner: Owner) -> Server | None:
        found: Server | None = self._nova.request("find a server", lambda: self._find(owner))
        return found

    def _find(self, owner: Owner) -> Server | None:
        if owner.server_id is not None:
            known = self._nova.servers.get(owner.server_id)
            return None if known is None else known.server
        return next(
            (
                each.server
                for each in self._nova.servers.values()
                if each.tag == owner.lease_id and each.project_id == owner.project_id
            ),
            None,
        )

    def delete(self, owner: Owner) -> None:
        def act() -> None:
            server = self._find(owner)
            if server is not None:
                self._nova.remove(server.id)

        self._nova.request("delete a server", act, changes=True)

    def shelve(self, owner: Owner) -> None:
        def act() -> None:
            made = self._nova.servers.get(owner.server_id or "")
            if made is not None:
                self._nova.shelve(made)

        self._nova.request("shelve a server", act, changes=True)

    def plain_server(self, server_id: str) -> PlainServer | None:
        def act() -> PlainServer | None:
            made = self._nova.servers.get(server_id)
            if made is None:
                return None
            return PlainServer(
                id=server_id,
                project_id=made.project_id,
                user_id="member",
                name=made.name,
                host=made.server.host,
                is_usable=made.server.status in (ServerStatus.BUILD, ServerStatus.ACTIVE),
                extra_specs=made.extra_specs,
            )

        found: PlainServer | None = self._nova.request("show a server", act)
        return found

    def server_hosts(self) -> Mapping[str, str] | None:
        def act() -> dict[str, str]:
            return {
                server_id: made.server.host
                for server_id, made in self._nova.servers.items()
                if made.server.host is not None
            }

        found: dict[str, str] = self._nova.request("list servers", act)
        return found

    def list_servers(self) -> Iterable[ListedServer] | None:
        def act() -> list[ListedServer]:
            return [
                ListedServer(
                    server_id,
                    made.project_id,
                    made.server.host,
                    frozenset(() if made.tag is None else (made.tag,)),
                )
                for server_id, made in self._nova.servers.items()
            ]

        found: list[ListedServer] = self._nova.request("list servers", act)
        return found

    def server_changes(self, since: datetime.datetime | None) -> Iterable[ServerChange] | None:
        def act() -> list[ServerChange]:
            nova = self._nova
            known = nova.servers if since is None else nova.servers | nova.removed
            return [
                ServerChange(server_id, made.tag, bool(made.extra_specs), made.changed_at)
                for server_id, made in known.items()
                if since is None or made.changed_at >= since
            ]

        found: list[ServerChange] = self._nova.request("list changes", act)
        return found
