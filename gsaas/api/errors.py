# SPDX-License-Identifier: Apache-2.0
"""Converts exceptions to HTTP responses, in the form of the API working group (API-SIG).

    {"errors": [{"request_id", "code", "status", "title", "detail", "links": []}]}

GSaaS's own exceptions have a code and a status (`gsaas.exceptions`, and those below that only HTTP knows). Exceptions
of Flask and the libraries are looked up in `LIBRARY_ERRORS`. Any other exception is a bug: it is logged with its
traceback, and the response has nothing but the request id.
"""

from __future__ import annotations

import functools
import http
from typing import Any

import flask
from oslo_db import exception as db_exception
from oslo_log import log
from werkzeug import exceptions as werkzeug_exceptions

from gsaas import exceptions
from gsaas.api import newer_fields
from gsaas.api.microversions import OLDEST, UnsupportedVersion
from gsaas.api.schemas import cgpus
from gsaas.db.storage import CannotStoreError
from gsaas.db.unstorable import is_unstorable_text

LOG = log.getLogger(__name__)


class UnsupportedMediaType(exceptions.GsaasError):
    """The Content-Type of the body is not JSON."""

    code = "gsaas.media-type.unsupported"
    status = 415
    fmt = "the body must be of Content-Type application/json, not %(given)s"


class LengthRequired(exceptions.GsaasError):
    """The body comes in chunks that cannot be read."""

    code = "gsaas.body.length-required"
    status = 411
    fmt = "the body could not be read in chunks: send its length in the header Content-Length"


LIBRARY_ERRORS: dict[type[Exception], tuple[int, str, str]] = {
    werkzeug_exceptions.NotFound: (404, "gsaas.url.not-found", "the API has no such URL"),
    werkzeug_exceptions.MethodNotAllowed: (
        405,
        "gsaas.method-not-allowed",
        "this URL does not support this method; the header Allow lists those that it supports",
    ),
    werkzeug_exceptions.RequestEntityTooLarge: (
        413,
        "gsaas.body.too-large",
        "the body is larger than %(max_body_bytes)d bytes, the most that the service reads",
    ),
    werkzeug_exceptions.HTTPException: (
        400,
        "gsaas.bad-request",
        "the request is not valid HTTP for this API",
    ),
    db_exception.DBConnectionError: (
        503,
        "gsaas.database.unreachable",
        "the database does not answer; try again",
    ),
    db_exception.DBDeadlock: (
        503,
        "gsaas.database.busy",
        "other transactions were faster each time; try again",
    ),
}
"""Exception class -> status, code and detail. The first class that the exception is an instance of counts."""


def register(app: flask.Flask) -> None:
    """Make *app* convert every exception as described above."""
    app.register_error_handler(exceptions.GsaasError, _gsaas_error)
    app.register_error_handler(Exception, _other_error)


def error_body(status: int, code: str, detail: str, **more: Any) -> dict[str, Any]:
    """Return an error of the current request in the API-SIG form; *more* are further fields of it."""
    error = {
        "request_id": flask.request.environ["openstack.request_id"],
        "code": code,
        "status": status,
        "title": http.HTTPStatus(status).phrase,
        "detail": detail,
        "links": [],
    }
    return {"errors": [error | more]}


def _gsaas_error(error: exceptions.GsaasError) -> flask.Response:
    if error.status == exceptions.GsaasError.status:
        return _internal_error(error)
    more: dict[str, Any] = {}
    if "details" in error.facts:
        prune = _pruner(flask.g.get("microversion", OLDEST))
        facts = error.facts["details"]
        more["gsaas"] = prune(facts) if prune else facts
    if "title" in error.facts:
        more["title"] = error.facts["title"]
    if isinstance(error, UnsupportedVersion):
        more["min_version"] = error.facts["min_version"]
        more["max_version"] = error.facts["max_version"]
    response = flask.jsonify(error_body(error.status, error.code, str(error), **more))
    response.status_code = error.status
    if isinstance(error, exceptions.Unauthorized):
        response.headers["WWW-Authenticate"] = error.facts.get("challenge", 'Token realm="gsaas"')
    return response


@functools.cache
def _pruner(version: str) -> newer_fields.Prune | None:
    """Return what leaves out of an error's facts the fields that are newer than a microversion."""
    return newer_fields.pruner(cgpus.FACTS, version)


def _other_error(error: Exception) -> flask.Response:
    known = next((known for known in LIBRARY_ERRORS if isinstance(error, known)), None)
    if isinstance(error, CannotStoreError):
        LOG.error("%s", error)
        return _gsaas_error(exceptions.DatabaseCannotStore(reason=error.reason))
    if known is None:
        if is_unstorable_text(error):
            return _gsaas_error(exceptions.UnstorableText())
        return _internal_error(error)
    status, code, detail = LIBRARY_ERRORS[known]
    limits = {"max_body_bytes": flask.current_app.config["MAX_CONTENT_LENGTH"]}
    response = flask.jsonify(error_body(status, code, detail % limits))
    response.status_code = status
    if isinstance(error, werkzeug_exceptions.MethodNotAllowed):
        response.allow.update(error.valid_methods or ())
    if status >= 500:
        LOG.error("%s", error)
    return response


def _internal_error(error: Exception) -> flask.Response:
    request = flask.request
    request_id = request.environ["openstack.request_id"]
    LOG.error(
        "%s %s failed unexpectedly [%s]", request.method, request.path, request_id, exc_info=error
    )
    detail = "an internal error occurred and was logged; report the request id to the operator of the service"
    response = flask.jsonify(error_body(500, exceptions.GsaasError.code, detail))
    response.status_code = 500
    return response
