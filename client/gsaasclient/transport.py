# SPDX-License-Identifier: Apache-2.0
"""The interface between the API client and what carries its requests."""

from __future__ import annotations

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from typing import Protocol

    from gsaasclient.vms import Vm

    class Headers(Protocol):
        """Header fields by name, in upper or lower case."""

        def get(self, name: str, /) -> str | None:
            """Return the value of a header field, or None if the response has none."""


TIMEOUT = 60.0
"""Seconds for which a request may wait for the next bytes."""


class Response:
    """An HTTP response."""

    def __init__(self, status: int, reason: str, headers: Headers, content: bytes) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self.content = content


class Transport:
    """Carries requests to the API, with the caller's token."""

    timeout = TIMEOUT
    """Seconds for which the next request may wait for the next bytes."""

    def send(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Response:
        """Send a request and return the response, whatever its status; *path* begins with `/v1`.

        Raises `UnreachableError` if there is no response, its subclass `ConnectionLostError` if the request may have
        taken effect all the same, and `CredentialsError` if there is no valid token.
        """
        raise NotImplementedError

    def resolve(self, noun: str, name: str) -> str:
        """Return the id of the image, flavor or network with this name; *name* itself if it is an id.

        *noun* is one of these three words. A transport without a cloud returns *name*.
        Raises `ClientError` if the cloud has none with this name, or several.
        """
        return name

    def vm(self, server_id: str) -> Vm | None:
        """Return how to log in to the VM with this id; None if that is not known, or there is no cloud."""
        return None
