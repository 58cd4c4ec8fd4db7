# SPDX-License-Identifier: Apache-2.0
"""[healthcheck]: what besides the database makes `/healthcheck` answer 503.

The options are those of oslo.middleware's health check whose backends the API asks. They are registered by
`register_opts`, and not with all others: agents do without oslo.middleware.
"""

from __future__ import annotations

import copy

from oslo_config import cfg

GROUP = "healthcheck"
DEFAULTS = {
    "backends": ["disable_by_file"],
    "disable_by_file_path": "/etc/gsaas/healthcheck_disable",
}
"""Unlike the library's own, they let an operator drain an API without a change of its configuration."""


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options with *conf*."""
    options = _library_opts()
    conf.register_opts(options, group=GROUP)
    for name, value in DEFAULTS.items():
        conf.set_default(name, value, group=GROUP)


def list_opts() -> dict[str, list[cfg.Opt]]:
    """Return the options by group, for oslo-config-generator."""
    options = copy.deepcopy(_library_opts())
    cfg.set_defaults(options, **DEFAULTS)
    return {GROUP: options}


def _library_opts() -> list[cfg.Opt]:
    """Return the library's own objects: its backends register them again, which only the same objects allow."""
    from oslo_middleware.healthcheck import opts

    return [
        *(option for option in opts.HEALTHCHECK_OPTS if option.name == "backends"),
        *opts.DISABLE_BY_FILE_OPTS,
        *opts.DISABLE_BY_FILES_OPTS,
        *opts.ENABLE_BY_FILES_OPTS,
    ]
