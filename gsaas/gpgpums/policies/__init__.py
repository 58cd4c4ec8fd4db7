# SPDX-License-Identifier: Apache-2.0
"""Scheduling policies, found by name among the installed entry points `gsaas.gpgpums.policies`."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from importlib.metadata import EntryPoint

from stevedore.extension import ExtensionManager

from gsaas import exceptions
from gsaas.gpgpums.policies.base import Policy

NAMESPACE = "gsaas.gpgpums.policies"

LOG = logging.getLogger(__name__)


def load(name: str) -> Policy:
    """Return the policy *name* with its default options; raises `UnknownPolicy`."""
    return find(name, installed())


def names() -> list[str]:
    """Return the names of the policies that work here, sorted."""
    return sorted(installed())


def find(name: str, known: Mapping[str, Policy]) -> Policy:
    """Return the policy *name* of the *known* ones; raises `UnknownPolicy`."""
    try:
        return known[name]
    except KeyError:
        raise exceptions.UnknownPolicy(name=name, known=", ".join(sorted(known))) from None


@functools.cache
def installed() -> dict[str, Policy]:
    """Return every policy by name; each has one instance in the whole process."""
    return instances()


def instances() -> dict[str, Policy]:
    """Return new instances of every policy, by name.

    A policy that cannot be loaded is logged and left out.
    """
    manager: ExtensionManager[Policy] = ExtensionManager(
        NAMESPACE, invoke_on_load=True, on_load_failure_callback=_log_failure
    )
    policies = {}
    for extension in manager:
        if not isinstance(extension.obj, Policy):
            LOG.error("Scheduling policy %s is left out: it is not a Policy", extension.name)
        elif getattr(extension.obj, "name", None) != extension.name:
            LOG.error(
                "Scheduling policy %s is left out: its name is not that of its entry point",
                extension.name,
            )
        else:
            policies[extension.name] = extension.obj
    return policies


def _log_failure(
    _manager: ExtensionManager[Policy], entry_point: EntryPoint, error: BaseException
) -> None:
    LOG.error("Scheduling policy %s is left out: %s", entry_point, error)
