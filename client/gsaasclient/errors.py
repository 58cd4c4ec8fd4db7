# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the API client. The message of each is one sentence for the user."""

from __future__ import annotations

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from typing import Any


class ClientError(Exception):
    """The base of all of them: a request failed or could not be made."""


class CredentialsError(ClientError):
    """There are no usable credentials."""


class UnreachableError(ClientError):
    """The API or another service did not answer."""


class NotConnectedError(UnreachableError):
    """There was no connection, so nothing was sent."""


class ConnectionLostError(UnreachableError):
    """The connection ended before the answer was complete: the request may have taken effect."""


class StillBusyError(ClientError):
    """A wait in the queue ended without GPUs."""


class ApiError(ClientError):
    """The API answered with an error.

    status      the HTTP status
    code        the error's code, such as `gsaas.capacity.busy`; None if the answer is not the API's own
    request_id  the id by which logs name the request, if it is known
    facts       the error's member `gsaas`: what programs can read
    """

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
