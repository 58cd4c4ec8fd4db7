"""Speak to the GSaaS API: credentials in, decoded answers out, one sentence for what goes wrong.

Every command is a new process, so this file is careful about what it imports: the HTTP library is
loaded with the first request, and nothing outside the standard library at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from http.client import HTTPResponse
    from typing import Any

CREDENTIALS_VARIABLE = "GSAAS_CREDENTIALS"
DEFAULT_CREDENTIALS = "/run/gsaas/credentials.json"
API_VERSION = "gpu-scheduling 1.0"
TIMEOUT = 60
"""Seconds that one request may take."""


class ClientError(Exception):
    """What a person should be told, in one sentence."""


class CredentialsError(ClientError):
    """There are no usable credentials."""


class UnreachableError(ClientError):
    """No answer from the API."""


class ApiError(ClientError):
    """The API answered with an error. `facts` is what it says for machines, under "gsaas"."""

    def __init__(
        self,
        status: int,
        *,
        code: str | None = None,
        detail: str = "",
        request_id: str | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail or f"the API answered with HTTP status {status}")
        self.status = status
        self.code = code
        self.request_id = request_id
        self.facts = facts or {}


class Credentials:
    """Where the API is, and the token that says who asks."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    @classmethod
    def load(cls, environment: Mapping[str, str]) -> Credentials:
        """Read the file that *environment* names, or the one `gsaas-standalone` writes.

        Raises `CredentialsError`; a file that others may read is one too.
        """
        path = environment.get(CREDENTIALS_VARIABLE) or DEFAULT_CREDENTIALS
        try:
            with Path(path).open(encoding="utf-8") as file:
                mode = os.fstat(file.fileno()).st_mode
                document = json.load(file)
        except FileNotFoundError:
            raise CredentialsError(
                f"there are no credentials at {path}: start gsaas-standalone, which writes "
                f"{DEFAULT_CREDENTIALS}, or name a file with {CREDENTIALS_VARIABLE}"
            ) from None
        except OSError as error:
            raise CredentialsError(
                f"the credentials in {path} cannot be read: {error.strerror}; "
                f"name a file of your own with {CREDENTIALS_VARIABLE}"
            ) from None
        except ValueError as error:
            raise CredentialsError(f"{path} is not JSON: {error}") from None
        if mode & 0o077:
            raise CredentialsError(
                f"others can read the token in {path}; make it yours alone: chmod 600 {path}"
            )
        try:
            url, token = document["url"], document["token"]
        except (KeyError, TypeError):
            url = token = None
        if not isinstance(url, str) or not isinstance(token, str):
            raise CredentialsError(f'{path} should read {{"url": "http://…", "token": "…"}}')
        if not _is_http(url):
            raise CredentialsError(
                f"the url in {path} is {url!r}; it should be like http://host:9870"
            )
        return cls(url, token)


class Client:
    """One connection to the API, kept open between requests."""

    def __init__(self, credentials: Credentials) -> None:
        from urllib.parse import urlsplit

        self._credentials = credentials
        self._parts = urlsplit(credentials.url)
        self._connection = None

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Return the decoded answer: what JSON says, or text where the API answers with text.

        *path* begins with `/v1`; *body* is sent as JSON. Raises `ApiError` for an error status and
        `UnreachableError` when there is no answer.
        """
        headers = {
            "Accept": "application/json, text/plain",
            "OpenStack-API-Version": API_VERSION,
            "X-Auth-Token": self._credentials.token,
        }
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        path = self._parts.path.rstrip("/") + path
        return _decode(*self._exchange(method, path, content, headers))

    def _exchange(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[HTTPResponse, bytes]:
        """Send and read; once more where a kept connection went stale and nothing can be lost."""
        from http.client import HTTPException

        fresh = self._connection is None
        if fresh:
            self._connection = self._connect()
        try:
            self._connection.request(method, path, body=content, headers=headers)
            response = self._connection.getresponse()
            return response, response.read()
        except (OSError, HTTPException) as error:
            self._connection = None
            if not fresh and method == "GET":
                return self._exchange(method, path, content, headers)
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise UnreachableError(
                f"the GSaaS API at {self._credentials.url} does not answer: {reason}; "
                "is gsaas-standalone (or gsaas-api) running?"
            ) from error

    def _connect(self) -> Any:
        from http import client

        kind = client.HTTPSConnection if self._parts.scheme == "https" else client.HTTPConnection
        return kind(self._parts.hostname, self._parts.port, timeout=TIMEOUT)


def _is_http(url: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def _decode(response: HTTPResponse, content: bytes) -> Any:
    document = None
    if "json" in (response.headers.get_content_subtype() or ""):
        try:
            document = json.loads(content)
        except ValueError:
            raise ApiError(
                response.status, detail="the API's answer is not the JSON it claims to be"
            ) from None
    if response.status >= 400:
        raise _api_error(response, document)
    return content.decode() if document is None and content else document


def _api_error(response: HTTPResponse, document: Any) -> ApiError:
    """The first error of an API-SIG document; a proxy's error page leaves us only its status."""
    try:
        error = document["errors"][0]
        return ApiError(
            response.status,
            code=error.get("code"),
            detail=error.get("detail") or error.get("title") or "",
            request_id=error.get("request_id"),
            facts=error.get("gsaas"),
        )
    except (TypeError, KeyError, IndexError, AttributeError):
        return ApiError(
            response.status,
            detail=f"the API answered with HTTP status {response.status} {response.reason}",
            request_id=response.headers.get("X-OpenStack-Request-ID"),
        )
