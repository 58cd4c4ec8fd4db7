# SPDX-License-Identifier: Apache-2.0
"""All options of GSaaS, for oslo-config-generator (entry point `oslo.config.opts`)."""

from __future__ import annotations

from oslo_config import cfg

from gsaas import conf
from gsaas.conf import healthcheck, nova


def list_opts() -> list[tuple[cfg.OptGroup | str, list[cfg.Opt]]]:
    """Return pairs of a group and its options, as oslo-config-generator expects them."""
    own = [pair for module in conf.MODULES for pair in module.list_opts().items()]
    return [*own, *healthcheck.list_opts().items(), *nova.list_client_opts().items()]
