"""Where oslo-config-generator finds every option of ours (entry point `oslo.config.opts`)."""

from __future__ import annotations

from gsaas import conf
from gsaas.conf import nova


def list_opts() -> list:
    """Return `(group, options)` pairs, as oslo-config-generator asks for them."""
    ours = [pair for module in conf.MODULES for pair in module.list_opts().items()]
    return [*ours, *nova.list_client_opts().items()]
