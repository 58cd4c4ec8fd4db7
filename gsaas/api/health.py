# SPDX-License-Identifier: Apache-2.0
"""Health checks by load balancers, without a token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint

import sqlalchemy
from oslo_config import cfg
from oslo_db import exception as db_exception
from oslo_middleware.healthcheck.pluginbase import HealthcheckBaseExtension
from stevedore import named

from gsaas import exceptions
from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.conf import healthcheck as options

NAMESPACE = "oslo.middleware.healthcheck"
"""The entry points of backends, those of oslo.middleware and others."""


def load_backends(conf: cfg.ConfigOpts) -> Sequence[HealthcheckBaseExtension]:
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


def show(request: ApiRequest) -> ApiResponse:
    """Check whether this process can answer requests; the status is 503 if it cannot.

    It can if no backend reports it as disabled, if it can read the database, and if that keeps what is written.
    """
    for backend in request.service.health_backends:
        result = backend.healthcheck(request.server_port)
        if not result.available:
            raise exceptions.ServiceDisabled(reason=result.reason)
    try:
        with request.service.database.read() as session:
            session.execute(sqlalchemy.text("SELECT 1 FROM leases WHERE 1 = 0"))
    except db_exception.DBError:
        raise exceptions.ServiceUnhealthy(reason="this process cannot read the database") from None
    try:
        request.service.database.check()
    except db_exception.DBError:
        raise exceptions.ServiceUnhealthy(
            reason="the disk of the database does not keep what is written"
        ) from None
    return ApiResponse(200, {"status": "ok"})


def _refuse(_manager: object, entry_point: EntryPoint, error: BaseException) -> None:
    raise ValueError(
        f"[healthcheck]backends: {entry_point.name} cannot be used: {error}"
    ) from error


def _refuse_missing(names: Iterable[str]) -> None:
    raise ValueError(f"[healthcheck]backends: not installed: {', '.join(sorted(names))}")
