# SPDX-License-Identifier: Apache-2.0
"""The client of commands on a terminal: it says what it waits for when an answer takes long."""

from __future__ import annotations

from gsaasclient import Client
from gsaasclient.cli.standard_files import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gsaasclient.transport import Response

PATIENCE = 3.0
"""Seconds until it says so. Longer than the API delays an answer on a terminal (`INTERACTIVE_POLL`)."""


class PatientClient(Client):
    """A client that says once, after `PATIENCE`, that the API has not answered yet. launcher/api.c says the same."""

    _speaks = True

    def hurry(self, seconds: float) -> None:
        """Wait for at most *seconds*, without a word."""
        self._speaks = False
        super().hurry(seconds)

    def lend_terminal(self) -> None:
        """Print nothing any more."""
        self._speaks = False

    def send(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Response:
        if not self._speaks:
            return super().send(method, path, content, headers)
        # Imported here, because most commands are not on a terminal.
        from threading import Timer

        what = f"{method} {path.partition('?')[0]}"
        timer = Timer(
            PATIENCE,
            lambda: say(
                f"\r\x1b[Kwaiting for the GSaaS API to answer {what} (Ctrl-C ends the wait)\n"
            ),
        )
        timer.daemon = True
        timer.start()
        try:
            return super().send(method, path, content, headers)
        finally:
            timer.cancel()
