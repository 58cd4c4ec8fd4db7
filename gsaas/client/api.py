"""Requests to the API in its own terms: JSON in and out, and errors as exceptions."""

from __future__ import annotations

import json

from gsaas.client.errors import ApiError

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from typing import Any

    from gsaas.client.cloud import CloudCredentials
    from gsaas.client.credentials import Credentials
    from gsaas.client.transport import Response

API_VERSION = "gpu-scheduling 1.0"


class Client:
    """Asks the API in the name of whoever has the *credentials*."""

    def __init__(self, credentials: Credentials | CloudCredentials) -> None:
        self._transport = credentials.connect()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Return the decoded answer: what JSON says, or text where the API answers with text.

        *path* begins with `/v1`; *body* is sent as JSON. Raises `ApiError` for an error status,
        `UnreachableError` when there is no answer, and `CredentialsError` when Keystone refuses them.
        """
        headers = {
            "Accept": "application/json, text/plain",
            "OpenStack-API-Version": API_VERSION,
        }
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        return _decode(self._transport.send(method, path, content, headers))

    def resolve(self, noun: str, name: str) -> str:
        """Return the id of the image, flavor or network with this *name*, or *name* if it is an id.

        Raises `ClientError` if the cloud has none with this name, or several.
        """
        return self._transport.resolve(noun, name)


def _decode(answer: Response) -> Any:
    document = None
    if "json" in (answer.headers.get("Content-Type") or ""):
        try:
            document = json.loads(answer.content)
        except ValueError:
            raise ApiError(
                answer.status, detail="the API's answer is not the JSON it claims to be"
            ) from None
    if answer.status >= 400:
        raise _api_error(answer, document)
    return answer.content.decode() if document is None and answer.content else document


def _api_error(answer: Response, document: Any) -> ApiError:
    """The first error of an API-SIG document; a proxy's error page leaves us only its status."""
    try:
        error = document["errors"][0]
        return ApiError(
            answer.status,
            code=error.get("code"),
            detail=error.get("detail") or error.get("title") or "",
            request_id=error.get("request_id"),
            facts=error.get("gsaas"),
        )
    except (TypeError, KeyError, IndexError, AttributeError):
        return ApiError(
            answer.status,
            detail=f"the API answered with HTTP status {answer.status} {answer.reason}",
            request_id=answer.headers.get("X-OpenStack-Request-ID"),
        )
