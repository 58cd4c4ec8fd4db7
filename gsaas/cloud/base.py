# SPDX-License-Identifier: Apache-2.0
"""The interface of the clouds that boot VMs: what an entry point of `gsaas.cloud` implements.

The engine calls these methods repeatedly until the servers are in their desired state. So every method is idempotent,
and returns the current state, never the requested one.
"""

from __future__ import annotations

import abc
import datetime
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from oslo_config import cfg
from stevedore import driver as stevedore_driver
from stevedore.exception import NoMatches
from stevedore.extension import ExtensionManager

from gsaas.context import RequestContext
from gsaas.objects.plain_server import PlainServer

NAMESPACE = "gsaas.cloud"


class ServerStatus(enum.StrEnum):
    """The statuses of a server that GSaaS distinguishes: a few of Nova's."""

    BUILD = "BUILD"
    ACTIVE = "ACTIVE"
    """The server was made. It stays ACTIVE whatever its owner does with it (stop, reboot, rebuild, move)."""
    SHELVED = "SHELVED"
    """The server's disks are kept, but it is on no host, so it cannot use a GPU."""
    ERROR = "ERROR"
    DELETING = "DELETING"
    """The server is being deleted. An error, or a missing port, is then no failure of the launch."""


@dataclass(frozen=True)
class Port:
    """The interface of a VM that carries its binding: the one in the first network that the tenant requested."""

    id: str
    tap: str
    """Name of the tap on the compute host."""
    mac: str
    ip: str
    """IPv4 address: the first that the cloud lists."""
    other_ips: tuple[str, ...] = ()
    """Its further IPv4 addresses, any of which the VM may use."""


@dataclass(frozen=True)
class Server:
    """A VM as its cloud describes it now."""

    id: str
    status: ServerStatus
    host: str | None
    """The compute host; None until the cloud has chosen one."""
    port: Port | None
    """None until the cloud has made the port, and if that has no IPv4 address."""
    fault: str | None = None
    """The cloud's error message when the status is ERROR."""
    lacks_ipv4: bool = False
    """The port that would carry its binding is there, and has no IPv4 address."""
    failed_at: datetime.datetime | None = None
    """When the cloud last changed a server whose status is ERROR, by its own clock, in UTC without a time zone."""


@dataclass(frozen=True)
class Owner:
    """The lease that a server belongs to, and what the database knows about that server."""

    lease_id: str
    project_id: str
    since: datetime.datetime
    """When the lease was claimed, in UTC without a time zone: no server of the lease is older."""
    server_id: str | None = None
    """The server's id; None until its creation is recorded, and after its end."""
    untried: bool = False
    """Whether no engine has requested a server for this lease yet, so that `create` need not search for one."""


@dataclass(frozen=True)
class ServerChange:
    """A server that changed and may belong to a lease; the change itself is not described."""

    server_id: str
    lease_id: str | None = None
    """The lease that the server's tag names. The server's owner can set any tag."""
    asks: bool = False
    """Whether the server has properties that ask for cGPUs (`gsaas.objects.plain_server`)."""
    at: datetime.datetime | None = None
    """When it changed, by the cloud's clock, in UTC without a time zone; None: the cloud does not say."""


@dataclass(frozen=True)
class ListedServer:
    """A server of any project, as a list of all servers has it."""

    id: str
    project_id: str
    host: str | None
    """The compute host; None if it is on none."""
    lease_ids: frozenset[str] = frozenset()
    """The leases that its tags name. The server's owner can set any tag."""


class Cloud(abc.ABC):
    """Boots and deletes VMs. Every call may be repeated, and none waits for a VM to boot.

    Every method that sends a request to the cloud raises `CloudUnavailable` when the cloud does not answer.
    """

    needs_caller: bool = False
    """Whether servers are made with the caller's own token, so that `create` needs a context that has one."""
    notifies: bool = False
    """Whether the cloud sends notifications about its servers, as Nova does, for `gsaas.engine.nova_notifications`."""
    shelves: bool = False
    """Whether it has `shelve`."""
    poll_interval: float | None = None
    """Seconds between two calls of `find` for a server that is changing; None: [engine]poll_interval."""
    audit_interval: float = 0.0
    """Seconds between two calls of `server_changes`; 0: one call at every audit of the engine."""

    @classmethod
    def configured(cls, conf: cfg.ConfigOpts) -> Cloud:  # noqa: ARG003  (for those that need it)
        """Return the cloud that *conf* describes, without connecting to it.

        Raises `ValueError` if the configuration cannot be used, or the cloud works inside gsaas-standalone only.
        """
        raise ValueError(f"{cls.__name__} works inside gsaas-standalone only")

    def connect(self) -> None:
        """Connect, log in and find endpoints now, so that the first request need not wait for it. Optional.

        Call it in the process that sends the requests, not before a fork. Raises what the first request would raise.
        """
        return

    def complete(
        self, context: RequestContext, request: dict[str, Any]
    ) -> tuple[dict[str, Any], list[str]]:
        """Return *request* with the cloud's defaults for the server fields that its caller left out, and notes on them.

        Raises `ServerIncomplete` if a field is needed that has no default for the caller's project.
        """
        return request, []

    @abc.abstractmethod
    def check(self, context: RequestContext, request: dict[str, Any]) -> list[str]:
        """Check that the cloud would make this server, and make nothing.

        *request* has Nova's own server fields. Returns notes for the caller, such as the fields that this cloud
        ignores. Raises `ServerRefused`.
        """

    @abc.abstractmethod
    def compute_hosts(self) -> Sequence[str]:
        """Return the names of the hosts that can run VMs."""

    @abc.abstractmethod
    def create(
        self,
        context: RequestContext,
        owner: Owner,
        request: dict[str, Any],
        user_data: str,
        host: str | None,
        avoid: Sequence[str],
    ) -> Server:
        """Make the server of a lease and return it; if the lease already has one, return that.

        *user_data* is base64, as Nova takes it. *host* pins the server to one host; *avoid* names the hosts that it
        must not run on. Raises `ServerRefused` if the cloud makes none. After `CloudUnavailable` the cloud may have
        made the server all the same, or may make it a little later.
        """

    @abc.abstractmethod
    def find(self, owner: Owner) -> Server | None:
        """Return the server of a lease; None if it has none, or none any more."""

    @abc.abstractmethod
    def delete(self, owner: Owner) -> None:
        """Delete the server of a lease with its ports; do nothing if there is none."""

    def delete_second(self, owner: Owner, server_id: str) -> bool:
        """Delete another server that was made for a lease which has the server of *owner*; return whether it was one.

        A request whose answer was lost may have made it. A server that its owner gave the lease's tag stays.
        """
        return False

    def shelve(self, owner: Owner) -> None:
        """Have the cloud take the server of a lease off its host, with its disks kept; do nothing if there is none.

        Raises `ServerRefused` if the server cannot be shelved in its present state.
        """
        raise NotImplementedError(f"{type(self).__name__} shelves no servers")

    def plain_server(self, server_id: str) -> PlainServer | None:
        """Return a server that may be a plain one; None if there is none, or this cloud has no plain servers."""
        return None

    def server_hosts(self) -> Mapping[str, str] | None:
        """Return server id -> host, for all servers of all projects that are on a host.

        None if the cloud cannot list them all at once: the engine then calls `find` for every server.
        """
        return None

    def list_servers(self) -> Iterable[ListedServer] | None:
        """Return all servers of all projects that are not deleted; None if the cloud cannot list them all at once.

        Those that the cloud cannot reach now may be missing, without a word: `find` raises `CloudUnavailable` for them.
        """
        return None

    def set_tag(self, server_id: str, lease_id: str) -> None:
        """Give a server the tag of a lease. Raises `ServerRefused`; only with `list_servers`."""
        raise NotImplementedError(f"{type(self).__name__} tags no servers")

    def remove_tag(self, server_id: str, lease_id: str) -> None:
        """Take the tag of a lease from a server; do nothing without it. Raises `ServerRefused`."""
        raise NotImplementedError(f"{type(self).__name__} tags no servers")

    def server_changes(self, since: datetime.datetime | None) -> Iterable[ServerChange] | None:
        """Return which servers changed after *since* (None: since the earliest time that the cloud knows of).

        *since* is a moment of the cloud's clock, in UTC: the engine's own may differ from it. None if the cloud cannot
        list changes: the engine then calls `find` for every server.
        """
        return None


def load(name: str, conf: cfg.ConfigOpts) -> Cloud:
    """Return the cloud *name* as *conf* configures it; raise `ValueError` if it is not installed or cannot be used."""
    try:
        manager: stevedore_driver.DriverManager[Any] = stevedore_driver.DriverManager(
            NAMESPACE, name
        )
    except NoMatches as exc:
        known = ", ".join(sorted(ExtensionManager(NAMESPACE).entry_points_names()))
        raise ValueError(f"there is no cloud {name!r}; those here are {known}") from exc
    # stevedore cannot know what the entry points of a namespace are.
    implementation = cast(type[Cloud], manager.driver)
    return implementation.configured(conf)
