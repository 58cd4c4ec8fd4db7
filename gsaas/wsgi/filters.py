# SPDX-License-Identifier: Apache-2.0
"""The WSGI filters around the API: those of an operator's `api-paste.ini`, or else CORS and the headers of proxies.

A file for PasteDeploy, as other services of OpenStack have one, contains filters of oslo.middleware and of any other
package. Its pipeline ends in the application `gsaas.wsgi.filters:api`. `etc/gsaas/api-paste.ini` is the default as a
file, to start from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

from oslo_config import cfg
from oslo_middleware import base
from oslo_middleware import cors as oslo_cors
from oslo_middleware import http_proxy_to_wsgi as oslo_proxy
from paste import deploy

from gsaas import conf as gsaas_conf
from gsaas.api.idempotency import HEADER as IDEMPOTENCY_KEY
from gsaas.api.microversions import HEADER as VERSION_HEADER
from gsaas.wsgi import forwarded

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Wsgi = Callable[[Environ, StartResponse], Iterable[bytes]]
Filter = Callable[[Wsgi], Wsgi]

REQUEST_ID = "X-OpenStack-Request-ID"
FILE = "api-paste.ini"

_surrounded: ContextVar[tuple[Wsgi, cfg.ConfigOpts]] = ContextVar("_surrounded")
"""The API and its configuration, while PasteDeploy calls the factories of this module."""


def surround(app: Wsgi, conf: cfg.ConfigOpts) -> Wsgi:
    """Return *app* behind the filters of the file that `[api]paste_config` names, if there is one, or the default ones.

    oslo.middleware's limit of body sizes is not among the default ones: the API has its own (`[api]max_body_bytes`),
    whose refusals have the form of all its errors. Raises `ValueError` for a file that cannot be used.
    """
    oslo_cors.set_defaults(
        allow_headers=["X-Auth-Token", REQUEST_ID, VERSION_HEADER, IDEMPOTENCY_KEY, "Content-Type"],
        expose_headers=[VERSION_HEADER, REQUEST_ID],
        allow_methods=["GET", "POST", "PATCH", "DELETE"],
    )
    path = _file(conf)
    token = _surrounded.set((app, conf))
    try:
        if path is None:
            return cors({})(http_proxy_to_wsgi({})(app))
        return _load(path)
    finally:
        _surrounded.reset(token)


def api(_global_conf: dict[str, str]) -> Wsgi:
    """Return the API (`paste.app_factory`)."""
    return _surrounded.get()[0]


class Cors(oslo_cors.CORS):
    """oslo.middleware's CORS for requests of browsers, and `OPTIONS`; it makes objects of a request and its response.

    It does nothing with any other.
    """

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if "HTTP_ORIGIN" in environ or environ["REQUEST_METHOD"] == "OPTIONS":
            answer: Iterable[bytes] = super().__call__(environ, start_response)
            return answer
        return _behind(self)(environ, start_response)


class HTTPProxyToWSGI(oslo_proxy.HTTPProxyToWSGI):
    """Reads the headers of proxies where oslo.middleware's option says so, and believes proxies only.

    oslo.middleware's own reading believes what clients write into these headers before proxies append to them.
    """

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if self._conf_get("enable_proxy_headers_parsing"):
            forwarded.read(environ, self.oslo_conf.api.proxies)
        return _behind(self)(environ, start_response)


def cors(_global_conf: dict[str, str]) -> Filter:
    """Return CORS as `[cors]` configures it (`paste.filter_factory`)."""
    conf = _surrounded.get()[1]
    return lambda app: Cors(app, conf)


def http_proxy_to_wsgi(_global_conf: dict[str, str]) -> Filter:
    """Return what reads the headers of proxies, as `[oslo_middleware]` configures it (`paste.filter_factory`)."""
    conf = _surrounded.get()[1]
    return lambda app: HTTPProxyToWSGI(app, conf)


def _behind(middleware: base.ConfigurableMiddleware) -> Wsgi:
    """Return the application that a filter is around."""
    return cast(Wsgi, middleware.application)


def _file(conf: cfg.ConfigOpts) -> Path | None:
    """Return the configured file, or the one in the folder of configuration files if it exists."""
    if conf.api.paste_config:
        return Path(conf.api.paste_config).absolute()
    default = gsaas_conf.FOLDER / FILE
    return default if default.exists() else None


def _load(path: Path) -> Wsgi:
    """Return the application that the file *path* describes."""
    try:
        application: Wsgi = deploy.loadapp(f"config:{path}")
    except Exception as error:  # whatever the factories of other packages raise
        raise ValueError(f"[api]paste_config: {path} cannot be used: {error}") from error
    return application
