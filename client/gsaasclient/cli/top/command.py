# SPDX-License-Identifier: Apache-2.0
"""`gsaas top`: GPUs, leases and the queue; updated in a terminal, printed once elsewhere."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

from gsaasclient import ClientError
from gsaasclient.cli import readings
from gsaasclient.cli.output import print_document, print_text
from gsaasclient.cli.paging import get_all
from gsaasclient.cli.top import view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gsaasclient import Client
    from gsaasclient.cli.top.terminal import Terminal

HELP = "q quits, p pauses, s sorts GPUs by "
LINES_BY_KEY = {"up": -1, "k": -1, "down": 1, "j": 1}
"""By how many lines keys scroll."""
HEADER_LINES = 2
"""Lines above those that scroll."""


def top(client: Client, args: SimpleNamespace) -> int:
    """Show the cloud until q is pressed; once, if standard input or output is not a terminal."""
    if args.f != "table":
        print_document(args.f, vars(take_snapshot(client)))
    elif args.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        snapshot = take_snapshot(client)
        body = "\n".join(view.body(snapshot, args.sort))
        print_text(f"{view.heading(snapshot)}\n\n{body}".strip())
    else:
        # Imported here, because it loads modules that only a terminal needs.
        from gsaasclient.cli.top.terminal import Terminal

        try:
            with Terminal() as terminal:
                Display(client, terminal, args.sort, args.interval).run()
        except (EOFError, KeyboardInterrupt):  # these end it as q does
            pass
    return 0


def take_snapshot(client: Client) -> view.Snapshot:
    """Ask the API for everything that is shown, as far as the caller may see it. Raises `ClientError`."""
    gpus = get_all(client, "/v1/gpus", "gpus")
    # A caller who may list every GPU may also list the leases of all projects.
    all_projects = "?all_projects=true" if "gpus" in gpus else ""
    hosts = get_all(client, "/v1/hosts", "hosts").get("hosts", []) if all_projects else []
    return view.Snapshot(
        totals=gpus["totals"],
        gpus=gpus.get("gpus"),
        silent_hosts=[host["name"] for host in hosts if host["silent"]],
        leases=readings.with_readings(
            lambda version: get_all(client, f"/v1/leases{all_projects}", "leases", version)
        )["leases"],
        queue={
            name: part
            for name, part in get_all(client, "/v1/queue", "places").items()
            if name in ("totals", "places")
        },
    )


class Display:
    """The screen of `gsaas top`: a snapshot that is replaced every *interval* seconds, and how keys change its view."""

    def __init__(self, client: Client, terminal: Terminal, order: str, interval: float) -> None:
        self._client = client
        self._terminal = terminal
        self._order = order
        self._interval = interval
        self._paused = False
        self._offset = 0
        """How many lines of the body are scrolled away at the top."""
        self._error = ""

    def run(self) -> None:
        """Update and draw until q is pressed. Raises `ClientError` if the first snapshot cannot be taken."""
        self._snapshot = take_snapshot(self._client)
        due = time.monotonic() + self._interval
        while True:
            self._draw()
            key = self._terminal.key(max(0.0, due - time.monotonic()))
            if key == "q":
                return
            self._handle_key(key)
            if time.monotonic() >= due:
                if not self._paused:
                    self._update()
                due = time.monotonic() + self._interval

    def _update(self) -> None:
        """Take a new snapshot; if that fails, keep the old one and show the error."""
        try:
            self._snapshot, self._error = take_snapshot(self._client), ""
        except ClientError as error:
            self._error = f"NOT UP TO DATE: {error}"

    def _handle_key(self, key: str | None) -> None:
        page = max(1, self._terminal.size[1] - HEADER_LINES - 1)
        lines = LINES_BY_KEY | {"page up": -page, "page down": page}
        if key == "s":
            orders = list(view.ORDERS)
            self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        elif key == "p":
            self._paused = not self._paused
        elif key in lines:
            self._offset = max(0, self._offset + lines[key])

    def _draw(self) -> None:
        body = view.body(self._snapshot, self._order)
        visible = self._terminal.size[1] - HEADER_LINES
        self._offset = max(0, min(self._offset, len(body) - visible))
        state = self._error or ("PAUSED" if self._paused else "")
        status = "  ".join(filter(None, [state, HELP + self._order]))
        self._terminal.draw([view.heading(self._snapshot), status, *body[self._offset :]], 1)
