"""What GSaaS asks of the thing that boots VMs: the contract of the entry points `gsaas.cloud`.

The engine calls these again and again until the cloud is as the database wants it, so each is idempotent, and each
says what is, never what was asked for.
"""

from __future__ import annotations

import abc
import datetime
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oslo_config import cfg
from stevedore import driver as stevedore_driver
from stevedore.exception import NoMatches
from stevedore.extension import ExtensionManager

from gsaas.context import RequestContext

NAMESPACE = "gsaas.cloud"


class ServerStatus(enum.StrEnum):
    """As much of Nova's server status as GSaaS acts on."""

    BUILD = "BUILD"
    ACTIVE = "ACTIVE"
    """It has been made. What its owner does with it since (stop, reboot, rebuild, move it) changes nothing here."""
    SHELVED = "SHELVED"
    """Its disks are kept and it is on no host: nothing of it could use a GPU."""
    ERROR = "ERROR"
    DELETING = "DELETING"
    """It is on its way out: that it fails meanwhile, or has no port any more, is no fault of its launch."""


@dataclass(frozen=True)
class Port:
    """The VM's interface that carries the binding: the first network asked for."""

    id: str
    tap: str
    mac: str
    ip: str


@dataclass(frozen=True)
class Server:
    """A VM as its cloud sees it now."""

    id: str
    status: ServerStatus
    host: str | None
    """The compute host, once the cloud has chosen one."""
    port: Port | None
    """None until the cloud has made it."""
    fault: str | None = None
    """The cloud's own words when status is ERROR."""


@dataclass(frozen=True)
class Owner:
    """The lease that a server belongs to, and what the database knows of that server."""

    lease_id: str
    project_id: str
    since: datetime.datetime
    """When the lease was claimed, in UTC without a time zone: no server of it is older."""
    server_id: str | None = None
    """None until the server's creation was recorded, and after its end."""
    untried: bool = False
    """Nobody has tried to make a server for this lease yet, so there is none to look for."""


@dataclass(frozen=True)
class Trace:
    """Something happened to a server that may be a lease's."""

    server_id: str
    lease_id: str | None = None
    """The lease that the server says it is of. Its owner can make it say anything."""


class Cloud(abc.ABC):
    """Boots and deletes VMs. Every call may be repeated; none of them waits for a VM to boot.

    Calls that ask the cloud something raise `CloudUnavailable` when it does not answer.
    """

    needs_caller: bool = False
    """Servers are made with the caller's own token, so `create` needs a context that has one."""
    notifies: bool = False
    """It tells the message bus of what happens to servers, as Nova does: `gsaas.engine.notifications` listens."""
    poll_interval: float | None = None
    """Seconds between two looks at a server that is changing; None: as often as the engine usually looks."""
    audit_interval: float = 0.0
    """Seconds between two calls of `changed`; at 0 it is asked at every audit of the engine."""

    @classmethod
    def configured(cls, conf: cfg.ConfigOpts) -> Cloud:  # noqa: ARG003  (for those that need it)
        """The cloud that *conf* describes, for processes that know nothing else of it.

        `ValueError` if it cannot be used that way. Connects to nothing yet.
        """
        raise ValueError(f"{cls.__name__} is of use inside gsaas-standalone only")

    def connect(self) -> None:
        """Do beforehand what the first question would otherwise wait for: connections, tokens, addresses.

        To be called, if at all, in the process that asks, not before it forks. Raises what the first question would.
        """
        return

    @abc.abstractmethod
    def check(self, context: RequestContext, request: dict[str, Any]) -> list[str]:
        """Would the cloud make this server? Return notes for the caller, such as fields that mean nothing here.

        *request* holds Nova's own server fields. Raises `ServerRefused`; makes nothing.
        """

    @abc.abstractmethod
    def compute_hosts(self) -> Sequence[str]:
        """Names of the hosts that can run VMs."""

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
        """Make the server of a lease, or return the one that is there already.

        *user_data* is base64, as Nova takes it. *host* pins the server to one host; *avoid* names hosts it must not
        run on. Raises `ServerRefused`, having left nothing behind. After `CloudUnavailable` there may be a server
        all the same, now or a little later.
        """

    @abc.abstractmethod
    def find(self, owner: Owner) -> Server | None:
        """The server of a lease, however it came about; None if there is none (any more)."""

    @abc.abstractmethod
    def delete(self, owner: Owner) -> None:
        """Delete the server of a lease and all that came with it; nothing to delete is no error."""

    def placed(self) -> Mapping[str, str] | None:
        """Server id -> host, of all servers of all projects that are on one.

        None if it cannot tell of all at once: every server is to be looked at.
        """
        return None

    def changed(self, since: datetime.datetime | None) -> Iterable[Trace] | None:
        """What happened to servers after *since* (None: as long ago as the cloud can tell).

        None if it cannot tell at all: every server is to be looked at.
        """
        return None


def load(name: str, conf: cfg.ConfigOpts) -> Cloud:
    """The cloud *name* as *conf* configures it; `ValueError` if it is not installed."""
    try:
        found = stevedore_driver.DriverManager(NAMESPACE, name)
    except NoMatches as exc:
        known = ", ".join(sorted(ExtensionManager(NAMESPACE).entry_points_names()))
        raise ValueError(f"there is no cloud {name!r}; those here are {known}") from exc
    return found.driver.configured(conf)
