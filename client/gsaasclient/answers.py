# SPDX-License-Identifier: Apache-2.0
"""The API's answers: JSON values, text, and error documents as exceptions."""

from __future__ import annotations

import json

from gsaasclient.errors import ApiError

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient.transport import Response


def decode(response: Response) -> Any:
    """Return the JSON value or the text in *response*. Raises `ApiError` for an error status or invalid JSON."""
    document = None
    if "json" in (response.headers.get("Content-Type") or ""):
        try:
            document = json.loads(response.content)
        except ValueError:
            raise ApiError(response.status, detail="the API's answer is not valid JSON") from None
    if response.status >= 400:
        raise _api_error(response, document)
    return response.content.decode() if document is None and response.content else document


def _api_error(response: Response, document: Any) -> ApiError:
    """Return the first error of an API-SIG error document; of any other answer, the status alone."""
    try:
        error = document["errors"][0]
        return ApiError(
            response.status,
            code=error.get("code"),
            detail=error.get("detail") or error.get("title") or "",
            request_id=error.get("request_id"),
            facts=error.get("gsaas"),
        )
    except (TypeError, KeyError, IndexError, AttributeError):  # the error page of a proxy, say
        return ApiError(
            response.status,
            detail=f"the API answered with HTTP status {response.status} {response.reason}",
            request_id=response.headers.get("X-OpenStack-Request-ID"),
        )
