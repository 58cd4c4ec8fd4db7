# SPDX-License-Identifier: Apache-2.0
"""The transport with a token of Keystone that an earlier command has cached, and without the OpenStack SDK.

It leaves everything to `gsaasclient.cloud` when there is no token, the token is not accepted, the API is not where it
was, or a name of Nova, Glance or Neutron has to be looked up.

Where the API was, a proxy or another service may answer. A request that such an answer does not settle is sent again to
where the catalogue says, if that is safe. In any case the token is not used for a further request.
"""

from __future__ import annotations

from gsaasclient import idempotency
from gsaasclient.direct import DirectTransport
from gsaasclient.errors import ApiError, NotConnectedError
from gsaasclient.transport import Response, Transport

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from gsaasclient.cloud import CloudTransport
    from gsaasclient.token_cache import Cache, Token
    from gsaasclient.vms import Vm

UNAUTHORIZED = 401
ELSEWHERE = (404, 502, 503, 504)
"""What a proxy or another service answers at an address that the API has left."""
OURS = "gsaas."
"""What the codes of all errors of the API begin with."""


class CachedTransport(Transport):
    """Sends requests with the token in *cache* for as long as it works."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._token: Token | None = None
        self._direct: DirectTransport | None = None
        self._cloud: CloudTransport | None = None

    def send(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Response:
        if self._cloud is None and self._direct is None:
            self._read()
        response = self._send_with_token(method, path, content, headers)
        if response is None and self._cloud is None:
            self._sign_in()
            response = self._send_with_token(method, path, content, headers)
        if response is None:
            response = self._sdk().send(method, path, content, headers)
        return response

    def resolve(self, noun: str, name: str) -> str:
        return self._sdk().resolve(noun, name)

    def vm(self, server_id: str) -> Vm | None:
        return self._sdk().vm(server_id)

    def _send_with_token(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Response | None:
        """Send a request with the cached token; return None if there is none, or it works no longer."""
        if self._direct is None or self._token is None:
            return None
        response: Response | None
        self._direct.timeout = self.timeout
        try:
            response = self._direct.send(method, path, content, headers)
        except NotConnectedError:
            response = None  # the catalogue may name another place, and the SDK knows more about certificates
        if response is not None and response.status != UNAUTHORIZED:
            if not _is_of_others(response):
                return response
            if method != "GET" and idempotency.HEADER not in headers:
                self._forget(self._token)
                return response  # it may have taken effect
        self._forget(self._token)
        return None

    def _forget(self, token: Token) -> None:
        """Stop using *token*, here and in other processes."""
        self._cache.drop(token)
        self._direct = self._token = None

    def _sign_in(self) -> None:
        """Authenticate, unless another process has done so in the meantime. One process does it, the others wait."""
        with self._cache.alone():
            if not self._read():
                self._sdk().sign_in()

    def _read(self) -> bool:
        """Read the cached token; return whether there is one."""
        self._token = self._cache.read()
        if self._token is not None:
            token = self._token
            self._direct = DirectTransport(token.url, token.token, token.bundle)
        return self._token is not None

    def _sdk(self) -> CloudTransport:
        """Return the transport of the SDK, which is used for all requests from now on."""
        if self._cloud is None:
            from gsaasclient.cloud import CloudCredentials

            self._cloud = CloudCredentials(self._cache).connect()
            self._direct = self._token = None
        self._cloud.timeout = self.timeout
        return self._cloud


def _is_of_others(response: Response) -> bool:
    """Return whether the response is an error that did not come from the API itself."""
    if response.status not in ELSEWHERE:
        return False
    from gsaasclient.answers import decode

    try:
        decode(response)
    except ApiError as error:
        return not str(error.code).startswith(OURS)
    return True
