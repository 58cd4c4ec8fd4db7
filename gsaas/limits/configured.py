# SPDX-License-Identifier: Apache-2.0
"""Limits from the configuration: the same for every project."""

from __future__ import annotations

from oslo_config import cfg

from gsaas.limits.base import NO_LIMITS, UNITS, Amounts, Limits


class ConfiguredLimits(Limits):
    """The values of `[quotas]`, read at each request, so that a reload of the configuration takes effect."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    def of(self, project_id: str) -> Amounts:
        return {name: self._conf.quotas[name] for name in UNITS}


class NoLimits(Limits):
    """No project has limits."""

    def of(self, project_id: str) -> Amounts:
        return NO_LIMITS
