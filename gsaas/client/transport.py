"""What carries a request to the API, whoever says where that is: the contract of the transports."""

from __future__ import annotations

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT = 60
"""Seconds that one request may take."""


class Response:
    """An HTTP answer; *headers* find a name however it is capitalised."""

    def __init__(
        self, status: int, reason: str, headers: Mapping[str, str], content: bytes
    ) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self.content = content


class Transport:
    """One way to reach the API, with the caller's token."""

    def send(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Response:
        """Return the answer, whatever its status; *path* begins with `/v1`.

        Raises `UnreachableError` when there is none, `CredentialsError` when nobody says who asks.
        """
        raise NotImplementedError

    def resolve(self, noun: str, name: str) -> str:
        """Return the id of the image, flavor or network with this name, or *name* if it is one.

        Raises `ClientError` if there is none, or several. Where there is no cloud to ask, a name is
        as good as an id.
        """
        return name
