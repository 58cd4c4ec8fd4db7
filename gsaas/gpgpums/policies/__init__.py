"""Scheduling policies, found by name among the installed entry points `gsaas.gpgpums.policies`."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping

import stevedore

from gsaas import exceptions
from gsaas.gpgpums.policies.base import Policy

NAMESPACE = "gsaas.gpgpums.policies"

LOG = logging.getLogger(__name__)


def load(name: str) -> Policy:
    """Return the policy *name*, its knobs as they come; raises `UnknownPolicy`."""
    return find(name, installed())


def names() -> list[str]:
    """The policies that work here, sorted."""
    return sorted(installed())


def find(name: str, known: Mapping[str, Policy]) -> Policy:
    """Return the policy *name* of those *known*; raises `UnknownPolicy`."""
    try:
        return known[name]
    except KeyError:
        raise exceptions.UnknownPolicy(name=name, known=", ".join(sorted(known))) from None


@functools.cache
def installed() -> dict[str, Policy]:
    """Every policy by name, one instance for the whole process."""
    return instances()


def instances() -> dict[str, Policy]:
    """New instances of every policy, by name.

    One that cannot be loaded is logged and left out; the others work.
    """
    manager = stevedore.ExtensionManager(
        NAMESPACE, invoke_on_load=True, on_load_failure_callback=_report
    )
    policies = {}
    for extension in manager:
        if not isinstance(extension.obj, Policy):
            LOG.error("Scheduling policy %s is left out: it is no Policy", extension.name)
        elif getattr(extension.obj, "name", None) != extension.name:
            LOG.error(
                "Scheduling policy %s is left out: its name is not that of its entry point",
                extension.name,
            )
        else:
            policies[extension.name] = extension.obj
    return policies


def _report(_manager: object, entry_point: object, error: Exception) -> None:
    LOG.error("Scheduling policy %s is left out: %s", entry_point, error)
