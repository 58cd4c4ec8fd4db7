"""The way to an API whose address and token are known: the standard library's HTTP client."""

from __future__ import annotations

from gsaas.client.errors import UnreachableError
from gsaas.client.transport import TIMEOUT, Response, Transport

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from typing import Any


class DirectTransport(Transport):
    """One connection to the API, kept open between requests."""

    def __init__(self, url: str, token: str) -> None:
        from urllib.parse import urlsplit

        self._url = url
        self._token = token
        self._parts = urlsplit(url)
        self._connection = None

    def send(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Response:
        path = self._parts.path.rstrip("/") + path
        return self._exchange(method, path, content, {"X-Auth-Token": self._token, **headers})

    def _exchange(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Response:
        """Send and read; once more where a kept connection went stale and nothing can be lost."""
        from http.client import HTTPException

        fresh = self._connection is None
        if fresh:
            self._connection = self._connect()
        try:
            self._connection.request(method, path, body=content, headers=headers)
            response = self._connection.getresponse()
            return Response(response.status, response.reason, response.headers, response.read())
        except (OSError, HTTPException) as error:
            self._connection = None
            if not fresh and method == "GET":
                return self._exchange(method, path, content, headers)
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise UnreachableError(
                f"the GSaaS API at {self._url} does not answer: {reason}; "
                "is gsaas-standalone (or gsaas-api) running?"
            ) from error
        except (
            BaseException
        ):  # interrupted: the answer to this request must not be taken for the next one's
            self._connection.close()
            self._connection = None
            raise

    def _connect(self) -> Any:
        from http import client

        kind = client.HTTPSConnection if self._parts.scheme == "https" else client.HTTPConnection
        return kind(self._parts.hostname, self._parts.port, timeout=TIMEOUT)
