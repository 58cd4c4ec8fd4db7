"""Quotas: what a project may hold at once, whoever says so, and what follows from it."""

from __future__ import annotations

from oslo_config import cfg

from gsaas.limits.base import Limits
from gsaas.limits.configured import ConfiguredLimits, NoLimits


def load(conf: cfg.ConfigOpts) -> Limits:
    """Return what `[quotas]driver` names. Connects to nothing yet."""
    match conf.quotas.driver:
        case "oslo_limit":
            # Only now: it brings the OpenStack SDK along, which gsaas-standalone does without.
            from gsaas.limits.keystone import KeystoneLimits

            return KeystoneLimits(conf)
        case "config":
            return ConfiguredLimits(conf)
        case _:
            return NoLimits()
