"""The WSGI application: one view per route, and each request goes the same way.

Who is it, which microversion, may they, does the address make sense, the query, the body: in this
order, so that a stranger learns nothing from the way a body is refused. Then the handler.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable

import flask
from oslo_config import cfg
from oslo_context.context import generate_request_id
from oslo_middleware import request_id
from werkzeug.sansio.utils import get_current_url

from gsaas import exceptions, limits
from gsaas.api import bodies, disconnects, errors, microversions, openapi, rbac, routes, validation
from gsaas.api.estimates import QueueEstimates
from gsaas.api.rbac.decisions import Decisions
from gsaas.api.route import Route
from gsaas.api.schemas import common
from gsaas.api.service import Call, Engine, Reply, Service
from gsaas.api.watchers import Watchers
from gsaas.cloud.base import Cloud
from gsaas.context import RequestContext
from gsaas.db.database import Database
from gsaas.gpgpums.claims import Claims
from gsaas.grants import keyring
from gsaas.metrics import counted
from gsaas.remoting.base import Driver

Authenticate = Callable[[flask.Request], RequestContext]

_JSON = json.JSONEncoder(separators=(",", ":"))
_NAME = re.compile(common.TEXT["pattern"].removesuffix("$"))
_NOUNS = {
    "lease_id": "lease",
    "uuid": "GPU",
    "name": "host",
    "host": "endpoint",
    "policy": "policy",
}
"""What the words in the paths are names of."""


def create_app(
    conf: cfg.ConfigOpts,
    *,
    database: Database,
    claims: Claims,
    engine: Engine,
    cloud: Cloud,
    remoting: Driver,
    authenticate: Authenticate,
    watchers: Watchers | None = None,
) -> flask.Flask:
    """Return the API as a WSGI application.

    *authenticate* turns a Flask request into the caller's context, which bears the request's id, or raises
    `Unauthorized` (`gsaas.api.auth.TokenFile` and `gsaas.api.keystone.Keystone` do). Everything passed in is shared by
    all threads.
    """
    document = openapi.document(routes.ROUTES)
    service = Service(
        conf,
        database,
        claims,
        engine,
        cloud,
        remoting,
        limits.load(conf),
        Decisions(rbac.enforcer(conf)),
        document,
        watchers or Watchers(conf.queue.long_polls),
        QueueEstimates(database),
        keyring.of(conf),
    )
    app = flask.Flask(__name__, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = conf.api.max_body_bytes
    app.json.sort_keys = False
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    errors.register(app)
    app.before_request(_begin)
    app.after_request(_end)
    for route in routes.ROUTES:
        app.add_url_rule(
            re.sub(openapi.NAMES, r"<\1>", route.path),
            endpoint=f"{route.method} {route.path}",
            view_func=_view(service, route, authenticate),
            methods=[route.method],
            provide_automatic_options=False,
        )
    return app


def _view(
    service: Service, route: Route, authenticate: Authenticate
) -> Callable[..., flask.Response]:
    def view(**names: str) -> flask.Response:
        request = flask.request
        context = authenticate(request) if route.rule else _nobody(request)
        call = Call(service, context, base_url=_base_url(service.conf, request))
        call.gone = functools.partial(disconnects.gone, request.environ)
        if route.rule:
            _check_project(context)
            flask.g.microversion = microversions.chosen(request.headers.get(microversions.HEADER))
            call.authorise(route.rule)
        for word, name in names.items():
            _check_name(_NOUNS[word], name)
        call.query = validation.query(route.query_schema, list(request.args.items(multi=True)))
        if route.body_schema is not None:
            call.body = bodies.read(request)
            route.body_schema.check(call.body)
        return _response(route.handler(call, **names))

    return view


def _nobody(request: flask.Request) -> RequestContext:
    """The context of a request that anybody may make; its own name is all that is known of it."""
    return RequestContext(request_id=request.environ[request_id.ENV_REQUEST_ID])


def _check_project(context: RequestContext) -> None:
    """Raise `NoProject` for a caller without one.

    Rules compare projects and queries are narrowed to one; none would compare as equal to none, and
    narrow to everything.
    """
    if not context.project_id:
        domain = context.domain_id and f"domain {context.domain_id}"
        system = context.system_scope and "the whole cloud"
        raise exceptions.NoProject(scope=system or domain or "no project")


def _check_name(noun: str, name: str) -> None:
    """What cannot be a name is the name of nothing: `NotFound`, without asking the database."""
    longest = common.TEXT["maxLength"]
    if not (_NAME.fullmatch(name) and common.TEXT["minLength"] <= len(name) <= longest):
        raise exceptions.NotFound(noun=noun, id=repr(name))


def _base_url(conf: cfg.ConfigOpts, request: flask.Request) -> str:
    known = conf.api.public_url or _root_url(request.scheme, request.host, request.root_path)
    return known.rstrip("/")


@functools.lru_cache(maxsize=64)
def _root_url(scheme: str, host: str, path: str) -> str:
    """What Flask's `root_url` is, which takes its time to make it."""
    return get_current_url(scheme, host, path)


def _response(reply: Reply) -> flask.Response:
    text, content_type = reply.body, "text/plain; charset=utf-8"
    if not isinstance(text, str):
        text, content_type = f"{_JSON.encode(text)}\n", "application/json"
    return flask.Response(text, reply.status, {"Content-Type": content_type, **reply.headers})


def _begin() -> None:
    """Note when the request began, and give it a name.

    As oslo.middleware's RequestId does, without webob, which would take as long as all of Flask.
    """
    flask.g.begun = time.perf_counter()
    environ = flask.request.environ
    environ[request_id.ENV_REQUEST_ID] = generate_request_id()
    given = flask.request.headers.get(request_id.INBOUND_HEADER, "")
    if re.fullmatch(request_id.ID_FORMAT, given):
        environ[request_id.GLOBAL_REQ_ID] = given


def _end(response: flask.Response) -> flask.Response:
    """Say what every answer says, and count it."""
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
    """Count the answer under its route; an address that is none has no name to count it by."""
    if flask.request.endpoint is not None:
        waited = "timeout" in flask.request.args
        method, _, route = flask.request.endpoint.partition(" ")
        seconds = None if waited else time.perf_counter() - flask.g.begun
        counted.answered(method, route, response.status_code, seconds)
