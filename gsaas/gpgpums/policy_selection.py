"""Which policies requests may name, and which serves those that name none.

The configuration says both; an admin may set another default while the service runs, which is
stored in the database and comes along with what every claim reads in any case.
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
"""Stands for every policy that is installed."""


class PolicySelection:
    """*default* is the configuration's; *allowed* names those that requests may ask for.

    The default is always allowed.
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
        """Return what *conf* says, all policies with their knobs set.

        A policy that cannot use its knobs is logged and left out. `ValueError` if the default is
        not there, or an allowed one is not.
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
        """Every policy that works here, by name."""
        return policies.installed() if self._known is None else self._known

    def default(self, setting: Any) -> Policy:
        """The policy for those who name none: an admin's *setting*, if that can be used here."""
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
        """May a request name the policy *name*?"""
        return ALL in self._allowed or name in self._allowed or name == self.default(setting).name

    def named(self, name: str, setting: Any) -> Policy:
        """The policy that a request names; raises `UnknownPolicy` or `PolicyNotAllowed`."""
        policy = policies.find(name, self.known)
        if not self.allows(name, setting):
            allowed = sorted(other for other in self.known if self.allows(other, setting))
            raise exceptions.PolicyNotAllowed(name=name, allowed=", ".join(allowed))
        return policy

    def of(self, name: str | None, setting: Any) -> Policy:
        """The policy for a request; raises as `named` does."""
        return self.default(setting) if name is None else self.named(name, setting)


def _configured(conf: cfg.ConfigOpts) -> dict[str, Policy]:
    known = policies.instances()
    for name, policy in list(known.items()):
        try:
            policy.configure(conf, known)
        except Exception as error:  # noqa: BLE001 - it may be anybody's
            LOG.error("Scheduling policy %s is left out: %s", name, error)
            del known[name]
    return known
