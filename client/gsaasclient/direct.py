# SPDX-License-Identifier: Apache-2.0
"""The transport to an API whose URL and token are known, over the standard library's HTTP client."""

from __future__ import annotations

from gsaasclient.errors import ConnectionLostError, NotConnectedError, UnreachableError
from gsaasclient.transport import Response, Transport

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPException


class DirectTransport(Transport):
    """Sends requests over one connection, which is kept open between them."""

    def __init__(self, url: str, token: str, bundle: str | None = None) -> None:
        """*url* is an http or https URL with a host; paths are appended to it.

        *bundle* is the file of the certificates to trust, by default those that OpenSSL trusts on this system.
        """
        from urllib.parse import urlsplit

        self._url = url
        self._token = token
        self._bundle = bundle
        self._parts = urlsplit(url)
        self._connection: HTTPConnection | None = None

    def send(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Response:
        path = self._parts.path.rstrip("/") + path
        return self._exchange(method, path, content, {"X-Auth-Token": self._token, **headers})

    def _exchange(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Response:
        """Send a request and read the response.

        The server may have closed a kept connection. A GET that is lost with one is sent again over a new connection.
        Any other request is not, because it may have taken effect: that is left to `Client.launch`.
        """
        from http.client import HTTPException

        kept = self._connection is not None
        connection = self._connection = self._connection or self._connect()
        try:
            connection.request(method, path, body=content, headers=headers)
            response = connection.getresponse()
            return Response(response.status, response.reason, response.headers, response.read())
        except (OSError, HTTPException) as error:
            self._connection = None
            if kept and method == "GET":
                return self._exchange(method, path, content, headers)
            lost = isinstance(error, (ConnectionError, HTTPException))
            raise self._unreachable(
                ConnectionLostError if lost else UnreachableError, error
            ) from error
        except BaseException:
            # After an interrupt the response is still to come: it must not be read as that of the next request.
            connection.close()
            self._connection = None
            raise

    def _connect(self) -> HTTPConnection:
        """Return a new connection. Raises `NotConnectedError`."""
        from http import client

        host, port = self._parts.hostname or "", self._parts.port
        try:
            if self._parts.scheme == "https":
                import ssl

                context = ssl.create_default_context(cafile=self._bundle)
                connection: HTTPConnection = client.HTTPSConnection(
                    host, port, timeout=self.timeout, context=context
                )
            else:
                connection = client.HTTPConnection(host, port, timeout=self.timeout)
            connection.connect()
        except OSError as error:
            raise self._unreachable(NotConnectedError, error) from error
        return connection

    def _unreachable(
        self, kind: type[UnreachableError], error: OSError | HTTPException
    ) -> UnreachableError:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return kind(
            f"the GSaaS API at {self._url} does not answer: {reason}; "
            "is gsaas-standalone (or gsaas-api) running?"
        )
