"""Limits from Keystone, through oslo.limit.

oslo.limit could also count and compare. It would do so before the claim, and two claims at once
would both be found to fit. So it only says what the limits are; `gsaas.gpgpums.claims` counts
inside the claim's own transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from keystoneauth1 import exceptions as keystone_exceptions
from openstack import exceptions as sdk_exceptions
from oslo_config import cfg
from oslo_limit import exception as limit_exceptions
from oslo_limit import limit
from oslo_log import log

from gsaas import exceptions
from gsaas.limits.base import UNITS, Amounts, Limits

LOG = log.getLogger(__name__)

SECTION = "oslo_limit"
SERVICE_TYPE = "gpu-scheduling"

_REFUSALS = (
    keystone_exceptions.ClientException,
    sdk_exceptions.SDKException,
    limit_exceptions.SessionInitError,
    ValueError,  # oslo.limit's way to say that our service is not in the catalogue
)


class KeystoneLimits(Limits):
    """Keystone's unified limits for the endpoint of this service; two requests each time."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """`ValueError` if nothing says as whom Keystone is asked."""
        # oslo.limit reads the global configuration and no other: it gets the files that ours came from.
        cfg.CONF(
            [],
            project="gsaas",
            default_config_files=conf.config_file,
            default_config_dirs=conf.config_dir,
        )
        cfg.CONF.set_default("endpoint_service_type", SERVICE_TYPE, group=SECTION)
        options = cfg.CONF[SECTION]
        if not (options.auth_type or options.auth_section):
            raise ValueError(
                f"[quotas]driver is oslo_limit, and the section [{SECTION}] does not say how to ask "
                "Keystone: set auth_type, auth_url and a user there who may read limits"
            )
        self._enforcer: limit.Enforcer | None = None
        self._lock = threading.Lock()

    def of(self, project_id: str) -> Amounts:
        with _asking(f"the limits of project {project_id}"):
            enforcer = self._once()
            defaults = dict(enforcer.get_registered_limits(None))
            own = dict(enforcer.get_project_limits(project_id, None))
        if missing := UNITS.keys() - defaults.keys():
            LOG.error(
                "Keystone has no registered limit for %s, so nobody may have any; "
                "run gsaas-manage limits register",
                ", ".join(sorted(missing)),
            )
        return {name: own.get(name, defaults.get(name, 0)) for name in UNITS}

    def missing(self) -> set[str]:
        """What Keystone has no registered limit for; raises `IdentityUnavailable`."""
        with _asking("the registered limits"):
            return UNITS.keys() - dict(self._once().get_registered_limits(None)).keys()

    def _once(self) -> limit.Enforcer:
        with self._lock:
            if self._enforcer is None:
                self._enforcer = limit.Enforcer(_count_nothing, cache=False)
            return self._enforcer


@contextmanager
def _asking(what: str) -> Iterator[None]:
    try:
        yield
    except _REFUSALS as error:
        LOG.error("%s cannot be read: %s", what, error)
        raise exceptions.IdentityUnavailable from error


def _count_nothing(_project_id: str | None, names: list[str]) -> dict[str, int]:
    return dict.fromkeys(names, 0)
