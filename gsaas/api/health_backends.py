# SPDX-License-Identifier: Apache-2.0
"""The backends of the health check: what it asks besides the database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint

from oslo_config import cfg
from oslo_middleware.healthcheck.pluginbase import HealthcheckBaseExtension
from stevedore import named

from gsaas.conf import healthcheck as options

NAMESPACE = "oslo.middleware.healthcheck"
"""The entry points of backends, those of oslo.middleware and others."""


def load(conf: cfg.ConfigOpts) -> Sequence[HealthcheckBaseExtension]:
    """Return the backends that `[healthcheck]backends` names, in that order.

    Raises `ValueError` for one that is not installed or cannot be used.
    """
    options.register_opts(conf)
    try:
        manager: named.NamedExtensionManager[HealthcheckBaseExtension] = (
            named.NamedExtensionManager(
                NAMESPACE,
                conf.healthcheck.backends,
                invoke_on_load=True,
                invoke_args=(conf, {}),
                name_order=True,
                on_load_failure_callback=_refuse,
                on_missing_entrypoints_callback=_refuse_missing,
            )
        )
    except cfg.Error as error:
        raise ValueError(f"[healthcheck] cannot be used: {error}") from error
    return [extension.obj for extension in manager if extension.obj is not None]


def _refuse(_manager: object, entry_point: EntryPoint, error: BaseException) -> None:
    raise ValueError(
        f"[healthcheck]backends: {entry_point.name} cannot be used: {error}"
    ) from error


def _refuse_missing(names: Iterable[str]) -> None:
    raise ValueError(f"[healthcheck]backends: not installed: {', '.join(sorted(names))}")
