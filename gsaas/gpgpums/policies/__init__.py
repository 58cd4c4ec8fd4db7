"""Scheduling policies, found by name among the installed entry points `gsaas.gpgpums.policies`."""

from __future__ import annotations

import functools
import logging

import stevedore

from gsaas import exceptions
from gsaas.gpgpums.policies.base import Policy

NAMESPACE = "gsaas.gpgpums.policies"

LOG = logging.getLogger(__name__)


def load(name: str) -> Policy:
    """Return the policy *name*; raises `UnknownPolicy`."""
    try:
        return _policies()[name]
    except KeyError:
        raise exceptions.UnknownPolicy(name=name, known=", ".join(names())) from None


def names() -> list[str]:
    """The policies that work here, sorted."""
    return sorted(_policies())


@functools.cache
def _policies() -> dict[str, Policy]:
    """Every policy by name. One that cannot be loaded is logged and left out; the others work."""
    manager = stevedore.ExtensionManager(
        NAMESPACE, invoke_on_load=True, on_load_failure_callback=_report
    )
    policies = {}
    for extension in manager:
        if isinstance(extension.obj, Policy):
            policies[extension.name] = extension.obj
        else:
            LOG.error("Scheduling policy %s is left out: it is no Policy", extension.name)
    return policies


def _report(_manager: object, entry_point: object, error: Exception) -> None:
    LOG.error("Scheduling policy %s is left out: %s", entry_point, error)
