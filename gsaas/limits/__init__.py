# SPDX-License-Identifier: Apache-2.0
"""Quotas: the limits of what a project may have at once, from the configuration or from Keystone."""

from __future__ import annotations

from oslo_config import cfg

from gsaas.limits.base import Limits
from gsaas.limits.configured import ConfiguredLimits, NoLimits


def load(conf: cfg.ConfigOpts) -> Limits:
    """Return the limits that `[quotas]driver` names, without connecting to anything.

    Raises `ValueError` if [oslo_limit] cannot be used.
    """
    match conf.quotas.driver:
        case "oslo_limit":
            # Imported here, because it imports the OpenStack SDK, which gsaas-standalone does not need.
            from gsaas.limits.keystone import KeystoneLimits

            return KeystoneLimits(conf)
        case "config":
            return ConfiguredLimits(conf)
        case _:
            return NoLimits()
