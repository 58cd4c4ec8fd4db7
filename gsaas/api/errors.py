"""From a situation to an HTTP answer, in the form of the API working group (API-SIG).

    {"errors": [{"request_id", "code", "status", "title", "detail", "links": []}]}

GSaaS's own errors bring their code and status along (`gsaas.exceptions`, and those below that only
HTTP knows). What Flask and the libraries raise is looked up in `FOREIGN`, by family. Whatever is
left is a bug: it is logged with its traceback, and answered with nothing but the request id.
"""

from __future__ import annotations

import http
from typing import Any

import flask
from oslo_db import exception as db_exception
from oslo_log import log
from werkzeug import exceptions as werkzeug_exceptions

from gsaas import exceptions

LOG = log.getLogger(__name__)


class UnsupportedMediaType(exceptions.GsaasError):
    """The body is something else than JSON, by its own account."""

    code = "gsaas.media-type.unsupported"
    status = 415
    fmt = "the body must be of Content-Type application/json, not %(given)s"


class MalformedVersion(exceptions.BadRequest):
    """The microversion header cannot be read."""

    code = "gsaas.microversion.malformed"
    fmt = "%(header)s is %(given)r; it must be like 'gpu-scheduling 1.0' or 'gpu-scheduling latest'"


class UnsupportedVersion(exceptions.GsaasError):
    """The microversion asked for is not spoken here."""

    code = "gsaas.microversion.unsupported"
    status = 406
    fmt = "microversion %(given)s is not spoken here, only %(min_version)s to %(max_version)s"


FOREIGN: dict[type[Exception], tuple[int, str, str | None]] = {
    werkzeug_exceptions.NotFound: (404, "gsaas.url.not-found", "there is nothing at this address"),
    werkzeug_exceptions.MethodNotAllowed: (
        405,
        "gsaas.method-not-allowed",
        "this address does not know this method",
    ),
    werkzeug_exceptions.RequestEntityTooLarge: (
        413,
        "gsaas.body.too-large",
        "the body is larger than the %(max_body_bytes)d bytes that are read",
    ),
    werkzeug_exceptions.HTTPException: (400, "gsaas.bad-request", "the request makes no sense"),
    db_exception.DBConnectionError: (
        503,
        "gsaas.database.unreachable",
        "the database does not answer; try again",
    ),
}
"""Family -> status, code, and what is said about it. The first family that matches counts."""


def register(app: flask.Flask) -> None:
    """Make *app* answer every exception as described above."""
    app.register_error_handler(exceptions.GsaasError, _ours)
    app.register_error_handler(Exception, _others)


def body(status: int, code: str, detail: str, **more: Any) -> dict[str, Any]:
    """Return an error in the API-SIG form, for the request at hand."""
    error = {
        "request_id": flask.request.environ["openstack.request_id"],
        "code": code,
        "status": status,
        "title": http.HTTPStatus(status).phrase,
        "detail": detail,
        "links": [],
    }
    return {"errors": [error | more]}


def _ours(error: exceptions.GsaasError) -> flask.Response:
    if error.status == exceptions.GsaasError.status:
        return _bug(error)
    more: dict[str, Any] = {}
    if "details" in error.facts:
        more["gsaas"] = error.facts["details"]
    if isinstance(error, UnsupportedVersion):
        more["min_version"] = error.facts["min_version"]
        more["max_version"] = error.facts["max_version"]
    response = flask.jsonify(body(error.status, error.code, str(error), **more))
    response.status_code = error.status
    if isinstance(error, exceptions.Unauthorized):
        response.headers["WWW-Authenticate"] = error.facts.get("challenge", 'Token realm="gsaas"')
    return response


def _others(error: Exception) -> flask.Response:
    family = next((family for family in FOREIGN if isinstance(error, family)), None)
    if family is None:
        return _bug(error)
    status, code, detail = FOREIGN[family]
    limits = {"max_body_bytes": flask.current_app.config["MAX_CONTENT_LENGTH"]}
    response = flask.jsonify(body(status, code, detail % limits))
    response.status_code = status
    if isinstance(error, werkzeug_exceptions.MethodNotAllowed):
        response.allow.update(error.valid_methods or ())
    if status >= 500:
        LOG.error("%s", error)
    return response


def _bug(error: Exception) -> flask.Response:
    request = flask.request
    LOG.error(
        "%s %s failed unexpectedly [%s]",
        request.method,
        request.path,
        request.environ["openstack.request_id"],
        exc_info=error,
    )
    response = flask.jsonify(
        body(500, exceptions.GsaasError.code, "something went wrong here; it has been logged")
    )
    response.status_code = 500
    return response
