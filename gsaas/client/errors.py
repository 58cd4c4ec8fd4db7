"""What can go wrong on the client's side, each with a sentence for a person."""

from __future__ import annotations

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from typing import Any


class ClientError(Exception):
    """What a person should be told, in one sentence."""


class CredentialsError(ClientError):
    """There are no usable credentials."""


class UnreachableError(ClientError):
    """No answer from the API."""


class StillBusyError(ClientError):
    """A wait in the queue ended, and there was nothing to be had."""


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
