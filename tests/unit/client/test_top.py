# SPDX-License-Identifier: Apache-2.0
"""What `gsaas top` shows of a snapshot, and how it uses a terminal."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
import threading

import pytest
from wcwidth import wcswidth

from gsaasclient import UnreachableError
from gsaasclient.cli.top import command, terminal, view
from tests.support.waiting import until


def gpu(index: int = 0, **changes) -> dict:
    reading = {"used_mb": 2048, "utilisation": 50.4, "temperature_c": 61.0, "power_w": 180.5}
    known = {
        "host": "gpu1",
        "index": index,
        "model": "A100",
        "memory_mb": 8192,
        "used_mb": 4096,
        "mode": "shared",
        "leases": ["lease-1"],
        "disabled": False,
        "withdrawn": None,
        "reading": reading | changes.pop("reading", {}),
    }
    return known | changes


def lease(lease_id: str = "lease-1", **changes) -> dict:
    known = {
        "id": lease_id,
        "name": "training",
        "project_id": "blue",
        "status": "ACTIVE",
        "degraded": False,
        "cgpus": {"count": 2, "memory_mb": 2048},
        "created_at": "2026-11-01T12:00:00.000000Z",
    }
    return known | changes


def place(position: int) -> dict:
    return {
        "lease_id": f"lease-{position}",
        "name": "later",
        "project_id": "red",
        "position": position,
        "estimate_seconds": 240.0,
        "cgpus": {"count": 1, "memory_mb": None},
    }


def snapshot(gpus=(), leases=(), places=()) -> view.Snapshot:
    totals = {"gpus": 8, "hosts": 2, "idle": 3, "memory_mb": 65536, "free_mb": 40960}
    queue = {"totals": {"length": len(places), "own": 0}, "places": list(places)}
    gpus = None if gpus is None else list(gpus)
    return view.Snapshot(
        totals=totals, gpus=gpus, silent_hosts=["gone"], leases=list(leases), queue=queue
    )


def lines(shown: view.Snapshot, order: str = "host") -> list[list[str]]:
    """The cells of each line."""
    return [line.split() for line in view.body(shown, order)]


def test_the_heading_has_the_totals():
    assert view.heading(snapshot(leases=[lease(), lease(status="QUEUED")], places=[place(1)])) == (
        "8 GPUs on 2 hosts, 3 idle, 24576 of 65536 MiB claimed or withheld, 1 lease, "
        "1 waiting, 0 of your project"
    )


def test_a_gpu_shows_how_much_of_it_is_claimed_and_used_and_the_leases():
    bar = "#####-----.........."
    row = ["gpu1", "0", "A100", bar, "4096", "2048", "8192", "50", "61", "180", "shared"]
    assert lines(snapshot([gpu()], [lease()]))[1] == [*row, "training", "(blue)"]


@pytest.mark.parametrize(
    ("claimed", "used", "expected"),
    [
        (0, 0, "...................."),
        (8192, None, "--------------------"),
        (2048, 4096, "##########.........."),  # in use without a claim
        (8192, 9000, "####################"),
    ],
)
def test_a_bar_always_has_the_same_length(claimed, used, expected):
    assert view.bar(claimed, used, 8192) == expected


def test_a_reading_that_is_missing_is_a_dash():
    nothing = dict.fromkeys(("used_mb", "utilisation", "temperature_c", "power_w"))
    for shown in (gpu(reading=nothing), gpu() | {"reading": None}):
        row = lines(snapshot([shown]))[1]
        assert (row[5], row[7:10]) == ("-", ["-", "-", "-"])


def test_gpus_of_a_silent_host_are_silent():
    assert lines(snapshot([gpu(host="gone")]))[1][10] == "silent"


@pytest.mark.parametrize(
    ("order", "first"), [("host", 0), ("held", 1), ("busy", 2), ("temperature", 3), ("power", 4)]
)
def test_gpus_are_sorted_by_what_is_asked_for(order, first):
    gpus = [
        gpu(5, reading={"utilisation": None, "temperature_c": None, "power_w": None}),
        gpu(4, reading={"power_w": 300.0}),
        gpu(3, reading={"temperature_c": 90.0}),
        gpu(2, reading={"utilisation": 99.0}),
        gpu(1, used_mb=8192),
        gpu(0, used_mb=0),
    ]
    assert set(view.ORDERS) == {"host", "held", "busy", "temperature", "power"}
    assert lines(snapshot(gpus), order)[1][1] == str(first)


def test_of_many_leases_some_are_named_and_the_others_counted():
    many = [f"lease-{number}" for number in range(9)]
    row = " ".join(lines(snapshot([gpu(leases=many)], [lease(i) for i in many]))[1])
    assert row.endswith("training (blue), training (blue), training (blue), 6 more")


def test_leases_and_places_in_the_queue_follow():
    shown = snapshot(
        None, [lease(degraded=True), lease("lease-2", status="QUEUED")], [place(1), place(2)]
    )
    *row, age = lines(shown)[1]
    assert row == [
        *("lease-1", "training", "ACTIVE,", "degraded"),
        *("2", "2048", "MiB", *"------", "blue"),
    ]
    assert age.endswith("d")
    assert lines(shown)[-1] == [*("lease-2", "later", "1", "whole", "GPU", "2", "4", "min", "red")]


def test_80_columns_of_a_terminal_have_how_busy_a_lease_is():
    shown = lease("28642596-0fcf-45aa-ba02-f3ba8468484c", name="n" * 60, degraded=True)
    heading, row = view.body(snapshot(None, [shown]), "host")
    assert heading.index("busy %") + len("busy %") <= 80
    assert row.startswith("  28642596  ")


def test_a_lease_that_has_an_end_is_not_idle():
    table = view.body(snapshot(None, [lease(ends_at="2040-01-01T00:00:00.000000Z")]), "host")
    assert "2040" not in table[1]


def test_an_empty_table_has_no_headings():
    assert view.body(snapshot(None), "host") == []


def test_names_do_not_control_the_terminal():
    shown = snapshot([gpu(model="\x1b[2J")], [lease(name="\x1b[31m\r\n")], [])
    assert not any(set("\x1b\r") & set(line) for line in view.body(shown, "host"))


class User:
    """The user of a pseudo-terminal: records what is drawn and presses keys. It serves as the API's client, too."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        self.resize(24, 80)
        self.keyboard = os.fdopen(slave, "r+b", buffering=0)
        self.screen = os.fdopen(os.dup(slave), "w")
        self.output = ""
        self.requests = 0
        self.away = False
        self.gpus = [gpu(number) for number in range(40)]
        threading.Thread(target=self._watch, daemon=True).start()

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def _watch(self) -> None:
        while True:
            try:
                self.output += os.read(self._master, 65536).decode()
            except OSError:
                return

    @property
    def drawn(self) -> list[str]:
        """The lines drawn last."""
        drawn = self.output.rpartition(terminal.HOME)[2].replace(terminal.END_OF_LINE, "")
        return [line.rstrip("\r") for line in drawn.split("\n")]

    @property
    def status(self) -> str:
        return "".join(self.drawn[1:2])

    def request(self, method: str, path: str, version: str = "1.0") -> dict:
        self.requests += 1
        if self.away:
            raise UnreachableError("the API is away")
        shown = vars(snapshot(self.gpus, [lease()]))
        return {
            "/v1/gpus": {"totals": shown["totals"], "gpus": shown["gpus"]},
            "/v1/leases?all_projects=true": {"leases": shown["leases"]},
            "/v1/hosts": {"hosts": [{"name": "gpu1", "silent": False}]},
            "/v1/queue": shown["queue"],
        }[path]

    def close(self) -> None:
        self.keyboard.close()
        self.screen.close()


@pytest.fixture
def user():
    user = User()
    yield user
    user.close()


def use(user: User, *acts, interval: float = 0.02) -> None:
    """Run `gsaas top` while *user* does one thing after the other, and finally presses q."""
    failures = []

    def live() -> None:
        try:
            for act in acts:
                act()
        except BaseException as failure:  # noqa: BLE001 (raised below)
            failures.append(failure)
        user.press("q")

    thread = threading.Thread(target=live)
    with terminal.Terminal(user.keyboard, user.screen) as shown:
        thread.start()
        command.Display(user, shown, "host", interval).run()
    thread.join()
    for failure in failures:
        raise failure


def test_the_terminal_is_restored_when_top_ends(user):
    before = termios.tcgetattr(user.keyboard), signal.getsignal(signal.SIGWINCH)
    use(user, lambda: until(lambda: "gpu1" in user.output, "GPUs"))
    assert (termios.tcgetattr(user.keyboard), signal.getsignal(signal.SIGWINCH)) == before
    until(lambda: user.output.endswith(terminal.LEAVE), "the screen to be left")
    assert user.output.startswith(terminal.ENTER)


def test_wide_characters_do_not_break_lines(user):
    user.resize(24, 40)
    user.gpus = [gpu(model="漢" * 40)]
    use(user, lambda: until(lambda: "漢" in "".join(user.drawn), "GPUs"))
    assert max(wcswidth(line) for line in user.drawn[2:]) <= 40


def test_keys_sort_and_scroll(user):
    def first() -> list[str]:
        return "".join(user.drawn[2:3]).split()[1:2]

    use(
        user,
        lambda: user.press("s"),
        lambda: until(lambda: "by held" in user.status, "another order"),
        lambda: user.press("j"),
        lambda: until(lambda: first() == ["0"], "the headings to scroll away"),
        lambda: user.press("\x1b[6~"),
        lambda: until(lambda: first() == ["21"], "the next page"),
        lambda: user.press("\x1b[5~k"),
        lambda: until(lambda: first() == ["model"], "the beginning"),
    )


def test_nothing_new_is_shown_during_a_pause(user):
    def nothing_is_requested() -> None:
        before = user.requests
        user.press("s")
        until(lambda: "by held" in user.status, "a key to be heard")
        assert user.requests == before

    use(
        user,
        lambda: user.press("p"),
        lambda: until(lambda: "PAUSED" in user.status, "a pause"),
        nothing_is_requested,
        lambda: user.press("p"),
        lambda: until(lambda: "PAUSED" not in user.status, "the end of the pause"),
    )


def test_a_new_size_is_used_at_once(user):
    def shrink() -> None:
        until(lambda: len(user.drawn) == 24, "a full screen")
        user.resize(10, 40)
        os.kill(os.getpid(), signal.SIGWINCH)
        until(lambda: len(user.drawn) == 10, "a smaller one")
        assert max(map(len, user.drawn[2:9])) <= 40

    use(user, shrink, interval=3600)


def test_an_api_that_is_away_is_waited_for(user):
    def leave() -> None:
        user.away = True

    def come_back() -> None:
        user.away = False

    use(
        user,
        lambda: until(lambda: len(user.drawn) > 2, "GPUs"),
        leave,
        lambda: until(lambda: "NOT UP TO DATE" in user.status, "the error"),
        lambda: until(lambda: "gpu1" in "".join(user.drawn), "the old snapshot"),
        come_back,
        lambda: until(lambda: "NOT UP" not in user.status, "a new snapshot"),
    )


def test_a_lease_shows_what_its_cgpus_do_together():
    reading = {
        "at": "2026-11-01T12:30:00.000000Z",
        "cgpus": [
            {"index": 0, "utilisation": 80.0, "used_mb": 1000},
            {"index": 1, "utilisation": None, "used_mb": None},
            {"index": 2, "utilisation": 41.0, "used_mb": 500},
        ],
        "path": {
            "sent_bytes_per_second": 512.0,
            "received_bytes_per_second": 3 * 2**20,
            "connections": 4,
            "dropped_packets": 0,
        },
    }
    idle = lease(reading=reading, idle_since="2026-11-01T12:05:00.000000Z")
    assert lines(snapshot(None, [idle]))[1][7:-2] == [
        *("60", "1500", "512", "B/s", "3.0", "MiB/s", "4", "2026-11-01", "12:05:00")
    ]


def test_an_idle_lease_whose_owner_is_warned_says_when_it_ends():
    warned = lease(
        idle_since="2026-11-01T12:05:00.000000Z", reclaim_at="2026-11-01T15:05:00.000000Z"
    )
    assert (
        "2026-11-01 12:05:00, ends at 2026-11-01 15:05:00"
        in view.body(snapshot(None, [warned]), "host")[1]
    )


def test_what_is_not_known_of_a_lease_is_not_zero():
    reading = {"at": "", "cgpus": [], "path": None}
    assert lines(snapshot(None, [lease(reading=reading, idle_since=None)]))[1][6:-2] == [*"------"]
