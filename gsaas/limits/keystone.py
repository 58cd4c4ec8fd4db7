# SPDX-License-Identifier: Apache-2.0
"""Limits from Keystone, through oslo.limit.

oslo.limit can also count usage and compare. It would do so before the claim, so that two concurrent claims could both
pass and together exceed the limit. So it is used only to read the limits; `gsaas.gpgpums.claims` counts usage inside
the transaction of the claim.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

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
_ALL: Any = None
"""The names of all resources: oslo.limit takes None for that, which its annotations do not say."""

_ERRORS = (
    keystone_exceptions.ClientException,
    sdk_exceptions.SDKException,
    limit_exceptions.SessionInitError,
    ValueError,  # oslo.limit raises it if GSaaS's service is not in the catalogue
)


class KeystoneLimits(Limits):
    """Keystone's unified limits for the endpoint of this service; each read takes two requests."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Raise `ValueError` if [oslo_limit] does not say which user reads the limits."""
        # oslo.limit reads only the global configuration: load that from the same files.
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
                f"[quotas]driver is oslo_limit, but the section [{SECTION}] does not say how to ask "
                "Keystone: set auth_type, auth_url and a user that may read limits there"
            )
        self._enforcer: limit.Enforcer | None = None
        self._lock = threading.Lock()

    def of(self, project_id: str) -> Amounts:
        with _reading(f"the limits of project {project_id}"):
            enforcer = self._get_enforcer()
            defaults = dict(enforcer.get_registered_limits(_ALL))
            own = dict(enforcer.get_project_limits(project_id, _ALL))
        if missing := UNITS.keys() - defaults.keys():
            LOG.error(
                "Keystone has no registered limit for %s, so no project gets any; "
                "run gsaas-manage limits register",
                ", ".join(sorted(missing)),
            )
        return {name: own.get(name, defaults.get(name, 0)) for name in UNITS}

    def missing(self) -> set[str]:
        """Return the resources for which Keystone has no registered limit; raise `IdentityUnavailable`."""
        with _reading("the registered limits"):
            return UNITS.keys() - dict(self._get_enforcer().get_registered_limits(_ALL)).keys()

    def _get_enforcer(self) -> limit.Enforcer:
        """Make the enforcer at its first use, because that connects to Keystone."""
        with self._lock:
            if self._enforcer is None:
                self._enforcer = limit.Enforcer(_count_no_usage, cache=False)
            return self._enforcer


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Log what the libraries raise in the block, and raise `IdentityUnavailable` instead."""
    try:
        yield
    except _ERRORS as error:
        LOG.error("%s cannot be read: %s", what, error)
        raise exceptions.IdentityUnavailable from error


def _count_no_usage(_project_id: str | None, names: Collection[str]) -> dict[str, int]:
    """Return 0 for each of *names*: `Enforcer` requires this callback, but calls it only to enforce limits."""
    return dict.fromkeys(names, 0)
