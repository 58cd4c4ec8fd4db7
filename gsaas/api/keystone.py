"""Authentication by Keystone: keystonemiddleware's auth_token as an authenticator of the API.

The middleware usually stands in front of an application and lets requests through. Here it stands beside it and is
asked about one request at a time, so that

1. URLs that need no token never wait for Keystone,
2. "Keystone is down" (503) and "this token is no good" (401) are told apart, in the API's own form, and
3. identity headers that a caller sends are never believed: only what the middleware has just written is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import flask
import webob
from keystoneauth1 import exceptions as keystone_exceptions
from keystonemiddleware import auth_token
from oslo_config import cfg
from oslo_log import log

from gsaas import exceptions
from gsaas.api import microversions
from gsaas.context import RequestContext

LOG = log.getLogger(__name__)

SECTION = "keystone_authtoken"
HEADER = "X-Auth-Token"
_ADMITTED = "gsaas.admitted"

_FIXED = {
    "service_type": microversions.SERVICE,  # for application credentials that allow some calls only
    "delay_auth_decision": False,
}


class KeystoneNotConfigured(Exception):
    """The configuration does not say how to ask Keystone; the message says what is missing."""


class Keystone:
    """An authenticator that asks Keystone, as the section `[keystone_authtoken]` of *conf* says.

    Safe to share between threads. It connects when the first token is to be checked.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Raises `KeystoneNotConfigured` if nothing says how this service authenticates itself."""
        self._gate = auth_token.AuthProtocol(_admit, {"oslo_config_config": conf, **_FIXED})
        options = conf[SECTION]
        if not (options.auth_type or options.auth_section):
            raise KeystoneNotConfigured(
                f"the section [{SECTION}] does not say how to ask Keystone: set auth_type, auth_url and "
                "the service user there, or use [api]auth_strategy = token-file"
            )

    def __call__(self, request: flask.Request) -> RequestContext:
        """Return the caller's context; raises `Unauthorized` and `IdentityUnavailable`."""
        environ = dict(request.environ)
        environ.pop(_ADMITTED, None)
        try:
            answer = webob.Request(environ).get_response(self._gate)
        except keystone_exceptions.ClientException as error:
            LOG.error("a token could not be checked: %s", error)
            raise exceptions.IdentityUnavailable from error
        if answer.status_int >= 500:
            raise exceptions.IdentityUnavailable
        if not environ.get(_ADMITTED):
            if HEADER in request.headers:
                reason = f"the token in {HEADER} is not valid, or is no longer"
            else:
                reason = f"this needs a token in the header {HEADER}"
            challenge = answer.headers.get("WWW-Authenticate", "Keystone")
            raise exceptions.Unauthorized(reason=reason, challenge=challenge)
        return RequestContext.from_environ(environ)


def _admit(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """What the gate leads to: the middleware calls this for a valid token, and only then."""
    environ[_ADMITTED] = True
    start_response("204 No Content", [])
    return []
