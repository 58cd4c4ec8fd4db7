"""What GSaaS asks of the thing that boots VMs: the contract of the entry points `gsaas.cloud`.

The engine calls these again and again until the cloud is as the database wants it, so each is idempotent, and each
says what is, never what was asked for.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Sequence
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
    ERROR = "ERROR"


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


class Cloud(abc.ABC):
    """Boots and deletes VMs. Every call may be repeated; none of them waits for a VM to boot."""

    @classmethod
    def configured(cls, conf: cfg.ConfigOpts) -> Cloud:  # noqa: ARG003  (for those that need it)
        """The cloud that *conf* describes, for processes that know nothing else of it.

        `ValueError` if it cannot be used that way. Connects to nothing yet.
        """
        raise ValueError(f"{cls.__name__} is of use inside gsaas-standalone only")

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
        lease_id: str,
        request: dict[str, Any],
        user_data: str,
        host: str | None,
        avoid: Sequence[str],
    ) -> Server:
        """Make the server of a lease, or return the one that is there already.

        *user_data* is base64, as Nova takes it. *host* pins the server to one host; *avoid* names hosts it must not
        run on. Raises `ServerRefused`, having left nothing behind.
        """

    @abc.abstractmethod
    def find(self, lease_id: str) -> Server | None:
        """The server of a lease, however it came about; None if there is none (any more)."""

    @abc.abstractmethod
    def delete(self, lease_id: str) -> None:
        """Delete the server of a lease and all that came with it; nothing to delete is no error."""


def load(name: str, conf: cfg.ConfigOpts) -> Cloud:
    """The cloud *name* as *conf* configures it; `ValueError` if it is not installed."""
    try:
        found = stevedore_driver.DriverManager(NAMESPACE, name)
    except NoMatches as exc:
        known = ", ".join(sorted(ExtensionManager(NAMESPACE).entry_points_names()))
        raise ValueError(f"there is no cloud {name!r}; those here are {known}") from exc
    return found.driver.configured(conf)
