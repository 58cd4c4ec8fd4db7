# SPDX-License-Identifier: Apache-2.0
"""The policies that requests may name, and the default policy for requests that name none.

The configuration sets both. An administrator may set another default while the service runs: it is stored in the
database, in a row that every claim reads in any case.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from oslo_config import cfg

from gsaas import exceptions
from gsaas.gpgpums import policies
from gsaas.gpgpums.policies.base import Policy

LOG = logging.getLogger(__name__)

ALL = "*"
"""Stands for every installed policy."""


class PolicySelection:
    """The policies of one process.

    *default* is the name of the configured default; *allowed* are the names that requests may ask for, besides the
    default. *known* are all policies that work here, by name; None: all installed ones.
    """

    def __init__(
        self,
        default: str = "least-load-fit",
        allowed: Collection[str] = (ALL,),
        known: Mapping[str, Policy] | None = None,
    ) -> None:
        self.configured = default
        self._allowed = frozenset(allowed)
        self._known = known

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> PolicySelection:
        """Return the selection that *conf* describes, with every policy configured.

        A policy that cannot be configured is logged and left out. Raises `ValueError` if the default or an allowed
        policy does not work here.
        """
        known = _configured(conf)
        options = conf.gpgpums
        for option, names in {
            "policy": [options.policy],
            "allowed_policies": [name for name in options.allowed_policies if name != ALL],
        }.items():
            for name in names:
                if name not in known:
                    raise ValueError(
                        f"[gpgpums]{option} names the policy {name!r}, which does not work here; "
                        f"those that do are {', '.join(sorted(known))}"
                    )
        return cls(options.policy, options.allowed_policies, known)

    @property
    def known(self) -> Mapping[str, Policy]:
        """Return every policy that works here, by name."""
        return policies.installed() if self._known is None else self._known

    def default(self, setting: Any) -> Policy:
        """Return the default policy: the one that an administrator set, *setting*, if it works here."""
        if setting is not None:
            if setting in self.known:
                return self.known[setting]
            LOG.error(
                "the default policy was set to %r, which does not work here: %s serves instead",
                setting,
                self.configured,
            )
        return policies.find(self.configured, self.known)

    def allows(self, name: str, setting: Any) -> bool:
        """Return whether a request may name the policy *name*."""
        return ALL in self._allowed or name in self._allowed or name == self.default(setting).name

    def named(self, name: str, setting: Any) -> Policy:
        """Return the policy that a request names; raises `UnknownPolicy`, `PolicyNotAllowed`."""
        policy = policies.find(name, self.known)
        if not self.allows(name, setting):
            allowed = sorted(other for other in self.known if self.allows(other, setting))
            raise exceptions.PolicyNotAllowed(name=name, allowed=", ".join(allowed))
        return policy

    def of(self, name: str | None, setting: Any) -> Policy:
        """Return the policy of a request, the default if *name* is None; raises what `named` raises."""
        return self.default(setting) if name is None else self.named(name, setting)


def _configured(conf: cfg.ConfigOpts) -> dict[str, Policy]:
    """Return new instances of all policies that *conf* could configure."""
    known = policies.instances()
    for name, policy in list(known.items()):
        try:
            policy.configure(conf, known)
        except Exception as error:  # noqa: BLE001 - policies may come from other packages
            LOG.error("Scheduling policy %s is left out: %s", name, error)
            del known[name]
    return known
