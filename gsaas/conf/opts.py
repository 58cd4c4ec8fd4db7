"""Where oslo-config-generator finds every option of ours (entry point `oslo.config.opts`)."""

from __future__ import annotations

from gsaas import conf


def list_opts() -> list:
    """Return `(group, options)` pairs, as oslo-config-generator asks for them."""
    return [pair for module in conf.MODULES for pair in module.list_opts().items()]
