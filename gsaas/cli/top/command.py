"""`gsaas top`: GPUs, who holds what, and who waits; live in a terminal, once for everything else."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

from gsaas.cli.output import print_document
from gsaas.cli.paging import get_all
from gsaas.cli.top import view
from gsaas.client import ClientError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gsaas.cli.top.terminal import Terminal
    from gsaas.client import Client

HELP = "q quits, p pauses, s sorts GPUs by "
STEPS = {"up": -1, "k": -1, "down": 1, "j": 1}


def top(client: Client, args: SimpleNamespace) -> int:
    """Show the cloud until somebody presses q; once, where nobody could."""
    if args.f != "table":
        print_document(args.f, vars(look(client)))
    elif args.once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        shown = look(client)
        print("\n\n".join([view.heading(shown), "\n".join(view.body(shown, args.sort))]).strip())
    else:
        from gsaas.cli.top.terminal import Terminal

        try:
            with Terminal() as terminal:
                Live(client, terminal, args.sort, args.interval).run()
        except (EOFError, KeyboardInterrupt):  # as good a way to leave as q
            pass
    return 0


def look(client: Client) -> view.Snapshot:
    """Ask the API how things are, as far as it tells its caller."""
    found = get_all(client, "/v1/gpus", "gpus")
    # Who may see every GPU may see whose it is, too.
    everybody = "?all_projects=true" if "gpus" in found else ""
    hosts = get_all(client, "/v1/hosts", "hosts").get("hosts", []) if everybody else []
    return view.Snapshot(
        totals=found["totals"],
        gpus=found.get("gpus"),
        silent_hosts=[host["name"] for host in hosts if host["silent"]],
        leases=get_all(client, f"/v1/leases{everybody}", "leases")["leases"],
        queue={
            word: part
            for word, part in get_all(client, "/v1/queue", "places").items()
            if word in ("totals", "places")
        },
    )


class Live:
    """What is shown, since when, and how; keys change it."""

    def __init__(self, client: Client, terminal: Terminal, order: str, interval: float) -> None:
        self._client = client
        self._terminal = terminal
        self._order = order
        self._interval = interval
        self._paused = False
        self._passed = 0
        """Lines of the body that were scrolled away."""
        self._shown: view.Snapshot | None = None
        self._trouble = ""

    def run(self) -> None:
        """Look, draw and obey, until q is pressed. Raises what the first look raises."""
        self._shown = look(self._client)
        due = time.monotonic() + self._interval
        while True:
            self._draw()
            key = self._terminal.key(max(0.0, due - time.monotonic()))
            if key == "q":
                return
            self._obey(key)
            if time.monotonic() >= due:
                if not self._paused:
                    self._look()
                due = time.monotonic() + self._interval

    def _look(self) -> None:
        """See what is new. An API that is away may come back; until then, show what was."""
        try:
            self._shown, self._trouble = look(self._client), ""
        except ClientError as error:
            self._trouble = f"NOT UP TO DATE: {error}"

    def _obey(self, key: str | None) -> None:
        page = max(1, self._terminal.size[1] - 3)
        steps = STEPS | {"page up": -page, "page down": page}
        if key == "s":
            orders = list(view.ORDERS)
            self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        elif key == "p":
            self._paused = not self._paused
        elif key in steps:
            self._passed = max(0, self._passed + steps[key])

    def _draw(self) -> None:
        body = view.body(self._shown, self._order)
        room = self._terminal.size[1] - 2
        self._passed = max(0, min(self._passed, len(body) - room))
        told = self._trouble or ("PAUSED" if self._paused else "")
        status = "  ".join(filter(None, [told, HELP + self._order]))
        self._terminal.draw([view.heading(self._shown), status, *body[self._passed :]], 1)
