# SPDX-License-Identifier: Apache-2.0
"""The WSGI application: one view per route, and the same steps for every request.

Authentication, microversion, access rule, path parameters, query, body, and then the handler. The access rule comes
before anything else is validated, so that error messages tell a caller without access nothing.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import flask
from flask.json.provider import DefaultJSONProvider
from oslo_config import cfg
from oslo_context.context import generate_request_id
from oslo_middleware import request_id
from werkzeug.exceptions import NotFound

from gsaas import exceptions
from gsaas.api import (
    audit,
    bodies,
    disconnects,
    errors,
    idempotency,
    microversions,
    openapi,
    routes,
    validation,
)
from gsaas.api.request import ApiRequest, ApiResponse, Connection
from gsaas.api.route import PATH_PARAMETER, Route
from gsaas.api.schemas import common
from gsaas.api.service import ApiService
from gsaas.context import RequestContext
from gsaas.metrics import counted
from gsaas.objects import device_kinds, ids

Authenticate = Callable[[flask.Request], RequestContext]
"""Returns the caller's context, which has the id of the request; raises `Unauthorized`."""

EXACT = frozenset(route.path for route in routes.ROUTES if route.exact)
"""Paths that are served in exactly this spelling."""
_JSON = json.JSONEncoder(separators=(",", ":"))
_NAME = re.compile(common.NAME_PATTERN.removesuffix("$"))


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and common.NAME_MIN <= len(text) <= common.NAME_MAX


_RESOURCES: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    "lease_id": ("lease", ids.is_id),
    "reservation_id": ("reservation", ids.is_id),
    "uuid": ("GPU", device_kinds.is_uuid),
    "name": ("host", _is_name),
    "host": ("endpoint", _is_name),
    "policy": ("policy", _is_name),
}
"""Path parameter -> the kind of resource that it names, for error messages, and whether a text can name one."""


def create_app(service: ApiService, authenticate: Authenticate) -> flask.Flask:
    """Return the API as a WSGI application.

    *authenticate* is `gsaas.api.auth.TokenFile`, `gsaas.api.keystone.Keystone` or a function like these. Both arguments
    are shared by all threads.
    """
    service.openapi = openapi.document(routes.ROUTES)
    app = flask.Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = service.conf.api.max_body_bytes
    if isinstance(app.json, DefaultJSONProvider):
        app.json.sort_keys = False
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    errors.register(app)
    app.before_request(_start_request)
    app.after_request(_finish_request)
    for route in routes.ROUTES:
        app.add_url_rule(
            re.sub(PATH_PARAMETER, r"<\1>", route.path),
            endpoint=f"{route.method} {route.path}",
            view_func=_view(service, route, authenticate),
            methods=[route.method],
            provide_automatic_options=False,
        )
    return app


def _view(
    service: ApiService, route: Route, authenticate: Authenticate
) -> Callable[..., flask.Response]:
    """Return the Flask view of *route*, which runs the steps described at the top."""

    def view(**path_parameters: str) -> flask.Response:
        flask_request = flask.request
        context = authenticate(flask_request) if route.rule else _anonymous_context(flask_request)
        flask.g.caller = context
        request = ApiRequest(service, context, _connection(service.conf, flask_request))
        if route.rule:
            _check_project(context)
            request.microversion = microversions.negotiate(
                flask_request.headers.get(microversions.HEADER)
            )
            flask.g.microversion = request.microversion
            request.authorise(route.rule)
            microversions.check_route(route.since, request.microversion)
        for parameter, value in path_parameters.items():
            _check_name(parameter, value)
        request.query = validation.parse_query(
            route.takes.query_schema,
            list(flask_request.args.items(multi=True)),
            request.microversion,
        )
        if route.takes.body_schema is not None:
            request.body = bodies.read(flask_request)
            route.takes.body_schema.check(request.body, request.microversion)
            flask.g.body = request.body
        if route.takes.repeatable:
            request.idempotency_key = idempotency.check(
                flask_request.headers.get(idempotency.HEADER)
            )
        response = route.handler(request, **path_parameters)
        return _flask_response(response, route.returns.prune(response.body, request.microversion))

    return audit.audited(view, route, service.notifications)


def _anonymous_context(flask_request: flask.Request) -> RequestContext:
    """Return the context of a request to a route that needs no token: it has nothing but the request's id."""
    return RequestContext(request_id=flask_request.environ[request_id.ENV_REQUEST_ID])


def _check_project(context: RequestContext) -> None:
    """Raise `NoProject` for a caller without a project.

    Access rules compare projects, and queries filter by project: None would equal another None in a rule, and would
    turn the filter of a query off.
    """
    if not context.project_id:
        domain = context.domain_id and f"domain {context.domain_id}"
        system = context.system_scope and "the whole cloud"
        raise exceptions.NoProject(scope=system or domain or "no project")


def _check_name(parameter: str, name: str) -> None:
    """Raise `NotFound`, without a database query, for a string that cannot name any resource."""
    noun, can_name = _RESOURCES[parameter]
    if not can_name(name):
        raise exceptions.NotFound(noun=noun, id=repr(name))


def _connection(conf: cfg.ConfigOpts, flask_request: flask.Request) -> Connection:
    return Connection(
        _base_url(conf, flask_request),
        int(flask_request.environ.get("SERVER_PORT") or 0),
        flask.g.started_at,
        functools.partial(disconnects.is_disconnected, flask_request.environ),
    )


def _base_url(conf: cfg.ConfigOpts, flask_request: flask.Request) -> str:
    """Return the beginning of links: the configured one, or that of a link relative to the host.

    The header Host, which a client chooses, is not used: a cache or a mail with such a link would lead others to it.
    """
    url: str = conf.api.public_url or flask_request.root_path
    return url.rstrip("/")


_ORIGIN = re.compile("^https?://[^/]*", re.IGNORECASE)
"""The beginning of a request's target in absolute form (RFC 9112, section 3.2.2)."""
_DOTS = re.compile(r"/\.{1,2}(/|$)")
"""A segment of a path that a server resolves."""


def _refuse_other_spellings(request: flask.Request) -> None:
    """Raise `werkzeug.exceptions.NotFound` for a path that a proxy could take for another one than Flask does.

    Flask corrects the slashes at the beginning of a path. `/metrics`, which needs no token, is served in one spelling
    only, so that a proxy can refuse it.
    """
    environ = request.environ
    path = environ.get("PATH_INFO", "")
    # What the client has sent, according to uWSGI or gsaas-standalone, or to gunicorn: a server corrects it, too.
    sent: str = environ.get("REQUEST_URI") or environ.get("RAW_URI") or path
    sent = _ORIGIN.sub("", sent.partition("?")[0])
    if "//" in path or "//" in sent:
        raise NotFound
    # Under gunicorn, a client may name the prefix in a header if the proxy in front does not drop it.
    prefix = "" if "HTTP_SCRIPT_NAME" in environ else environ.get("SCRIPT_NAME", "")
    if request.path.rstrip("/") in EXACT and (
        path not in EXACT or sent not in (path, prefix + path) or _DOTS.search(sent)
    ):
        raise NotFound


def _flask_response(response: ApiResponse, body: Mapping[str, Any] | str) -> flask.Response:
    content_type = "text/plain; charset=utf-8"
    if not isinstance(body, str):
        body, content_type = f"{_JSON.encode(body)}\n", "application/json"
    return flask.Response(body, response.status, {"Content-Type": content_type, **response.headers})


def _start_request() -> None:
    """Store the time at which the request began, and its id.

    This does what oslo.middleware's RequestId does, but without webob, which takes as long as the rest of Flask.
    """
    flask.g.started_at = time.perf_counter()
    environ = flask.request.environ
    environ[request_id.ENV_REQUEST_ID] = generate_request_id()
    _refuse_other_spellings(flask.request)
    global_id = flask.request.headers.get(request_id.INBOUND_HEADER, "")
    if re.fullmatch(request_id.ID_FORMAT, global_id):
        environ[request_id.GLOBAL_REQ_ID] = global_id


def _finish_request(response: flask.Response) -> flask.Response:
    """Add the headers that every response has, and count the response."""
    headers = response.headers
    headers[request_id.HTTP_RESP_HEADER_REQUEST_ID] = flask.request.environ[
        request_id.ENV_REQUEST_ID
    ]
    version = flask.g.get("microversion")
    if version is not None:
        headers[microversions.HEADER] = f"{microversions.SERVICE} {version}"
    headers["Vary"] = microversions.HEADER
    _count(response)
    return response


def _count(response: flask.Response) -> None:
    """Count the response under its route. A URL without a route is not counted: it would be a metric of its own."""
    if flask.request.endpoint is not None:
        # A long poll lasts as long as its caller wants: its duration says nothing of this process.
        long_poll = "timeout" in flask.request.args
        method, _, route = flask.request.endpoint.partition(" ")
        seconds = None if long_poll else time.perf_counter() - flask.g.started_at
        counted.answered(method, route, response.status_code, seconds)
