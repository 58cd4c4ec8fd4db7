# SPDX-License-Identifier: Apache-2.0
"""Authentication by Keystone: keystonemiddleware's auth_token as an authenticator of the API.

The middleware usually wraps an application and passes requests on to it. Here the API calls it, with a copy of each
request that needs a token, so that

1. URLs that need no token never wait for Keystone,
2. "Keystone is down" (503) and "the token is not valid" (401) are different errors, both in the API's own form, and
3. identity headers that a caller sends have no effect: only those that the middleware has just written are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import flask
from keystoneauth1 import exceptions as keystone_exceptions
from keystonemiddleware import auth_token
from oslo_config import cfg
from oslo_log import log
from werkzeug.datastructures import Headers

from gsaas import exceptions
from gsaas.api import microversions
from gsaas.api.validations import Validations
from gsaas.context import RequestContext

LOG = log.getLogger(__name__)

SECTION = "keystone_authtoken"
HEADER = "X-Auth-Token"
_VALIDATED = "gsaas.validated"
"""The key of the WSGI environment that is set when the middleware accepts the token."""

_FIXED = {
    "service_type": microversions.SERVICE,  # for application credentials that are restricted to some requests
    "delay_auth_decision": False,
    # GSaaS finds services with its own token, and of the caller's catalogue a header would be made for each request.
    "include_service_catalog": False,
    # Before keystonemiddleware 13 the default lets a service token pass whose user is no service.
    "service_token_roles_required": True,
}


class KeystoneNotConfigured(Exception):
    """The configuration does not say how to reach Keystone; the message says what is missing."""


class Keystone:
    """An authenticator that validates tokens with Keystone, as `[keystone_authtoken]` of *conf* says.

    Safe to share between threads. It connects to Keystone when it validates the first token.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Raises `KeystoneNotConfigured` if the configuration has no credentials of this service."""
        self._middleware = auth_token.AuthProtocol(
            _mark_valid, {"oslo_config_config": conf, **_FIXED}
        )
        self._validations = Validations()
        options = conf[SECTION]
        if not (options.auth_type or options.auth_section):
            raise KeystoneNotConfigured(
                f"the section [{SECTION}] does not say how to reach Keystone: set auth_type, auth_url and "
                "the service user there, or use [api]auth_strategy = token-file"
            )

    def __call__(self, request: flask.Request) -> RequestContext:
        """Return the caller's context; raises `Unauthorized` or `IdentityUnavailable`."""
        token = request.headers.get(HEADER)
        if token is None:
            return self._validate(request)
        return self._validations.run(token, lambda: self._validate(request))

    def _validate(self, request: flask.Request) -> RequestContext:
        environ = dict(request.environ)  # the middleware writes into it
        environ.pop(_VALIDATED, None)
        answer = _Answer()
        try:
            self._middleware(environ, answer.start)
        except keystone_exceptions.ClientException as error:
            LOG.error("Keystone could not validate a token: %s", error)
            raise exceptions.IdentityUnavailable from error
        if answer.status.startswith("5"):
            raise exceptions.IdentityUnavailable
        if not environ.get(_VALIDATED):
            if HEADER in request.headers:
                reason = f"the token in {HEADER} is not valid or has expired"
            else:
                reason = f"this request needs a token in the header {HEADER}"
            challenge = answer.headers.get("WWW-Authenticate", "Keystone")
            raise exceptions.Unauthorized(reason=reason, challenge=challenge)
        return RequestContext.from_environ(environ)


class _Answer:
    """What the middleware answers to a request, without the body."""

    status = ""
    """It begins with the code."""

    def __init__(self) -> None:
        self.headers = Headers()

    def start(self, status: str, headers: list[tuple[str, str]], *_: Any) -> Callable[..., Any]:
        """Receive the status and the headers: `start_response` of PEP 3333."""
        self.status, self.headers = status, Headers(headers)
        return lambda _: None


def _mark_valid(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer as the WSGI application that the middleware wraps: it calls this only if the token is valid."""
    environ[_VALIDATED] = True
    start_response("204 No Content", [])
    return []
