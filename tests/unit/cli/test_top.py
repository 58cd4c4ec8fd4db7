"""What `gsaas top` shows of a snapshot, and what it does with a terminal."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
import threading

import pytest

from gsaas.cli.top import command, terminal, view
from gsaas.client import UnreachableError
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


def test_the_heading_says_how_much_there_is_and_how_much_of_it_is_left():
    assert view.heading(snapshot(leases=[lease(), lease(status="QUEUED")], places=[place(1)])) == (
        "8 GPUs on 2 hosts, 3 idle, 24576 of 65536 MiB held or withheld, 1 lease, "
        "1 waiting, 0 of your project"
    )


def test_a_gpu_shows_what_is_held_and_used_of_it_and_by_whom():
    bar = "#####-----.........."
    row = ["gpu1", "0", "A100", bar, "4096", "2048", "8192", "50", "61", "180", "shared"]
    assert lines(snapshot([gpu()], [lease()]))[1] == [*row, "training", "(blue)"]


@pytest.mark.parametrize(
    ("held", "used", "expected"),
    [
        (0, 0, "...................."),
        (8192, None, "--------------------"),
        (2048, 4096, "##########.........."),  # somebody uses what nobody gave him
        (8192, 9000, "####################"),
    ],
)
def test_a_bar_is_always_as_long(held, used, expected):
    assert view.bar(held, used, 8192) == expected


def test_what_a_gpu_does_not_tell_is_a_dash():
    nothing = dict.fromkeys(("used_mb", "utilisation", "temperature_c", "power_w"))
    for shown in (gpu(reading=nothing), gpu() | {"reading": None}):
        row = lines(snapshot([shown]))[1]
        assert (row[5], row[7:10]) == ("-", ["-", "-", "-"])


def test_a_host_that_is_silent_is_not_believed():
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


def test_of_many_holders_some_are_named_and_the_others_counted():
    many = [f"lease-{number}" for number in range(9)]
    row = " ".join(lines(snapshot([gpu(leases=many)], [lease(i) for i in many]))[1])
    assert row.endswith("training (blue), training (blue), training (blue), 6 more")


def test_leases_and_places_in_the_queue_follow():
    shown = snapshot(
        None, [lease(degraded=True), lease("lease-2", status="QUEUED")], [place(1), place(2)]
    )
    assert lines(shown)[1] == [
        *("lease-1", "training", "blue", "ACTIVE", "degraded"),
        *("2", "2048", "MiB", "2026-11-01", "12:00:00"),
    ]
    assert lines(shown)[-1] == [
        *("lease-2", "later", "red", "1", "whole", "GPU", "2", "about", "4", "min")
    ]


def test_where_there_is_nothing_there_are_no_headings():
    assert view.body(snapshot(None), "host") == []


def test_nobodys_name_steers_the_terminal():
    shown = snapshot([gpu(model="\x1b[2J")], [lease(name="\x1b[31m\r\n")], [])
    assert not any(set("\x1b\r") & set(line) for line in view.body(shown, "host"))


class Person:
    """Somebody before a terminal, who sees what is drawn and presses keys; an API's client, too."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        self.resize(24, 80)
        self.keyboard = os.fdopen(slave, "r+b", buffering=0)
        self.screen = os.fdopen(os.dup(slave), "w")
        self.seen = ""
        self.asked = 0
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
                self.seen += os.read(self._master, 65536).decode()
            except OSError:
                return

    @property
    def drawn(self) -> list[str]:
        """The lines drawn last."""
        drawn = self.seen.rpartition(terminal.HOME)[2].replace(terminal.END_OF_LINE, "")
        return [line.rstrip("\r") for line in drawn.split("\n")]

    @property
    def status(self) -> str:
        return "".join(self.drawn[1:2])

    def request(self, method: str, path: str) -> dict:
        self.asked += 1
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
def person():
    somebody = Person()
    yield somebody
    somebody.close()


def use(person: Person, *acts, interval: float = 0.02) -> None:
    """Run `gsaas top` while *person* does one thing after the other, and presses q at last."""
    failures = []

    def live() -> None:
        try:
            for act in acts:
                act()
        except BaseException as failure:  # noqa: BLE001 (told below)
            failures.append(failure)
        person.press("q")

    thread = threading.Thread(target=live)
    with terminal.Terminal(person.keyboard, person.screen) as shown:
        thread.start()
        command.Live(person, shown, "host", interval).run()
    thread.join()
    for failure in failures:
        raise failure


def test_the_terminal_is_as_it_was_before_when_top_ends(person):
    before = termios.tcgetattr(person.keyboard), signal.getsignal(signal.SIGWINCH)
    use(person, lambda: until(lambda: "gpu1" in person.seen, "GPUs"))
    assert (termios.tcgetattr(person.keyboard), signal.getsignal(signal.SIGWINCH)) == before
    until(lambda: person.seen.endswith(terminal.LEAVE), "the screen to be left")
    assert person.seen.startswith(terminal.ENTER)


def test_keys_sort_and_scroll(person):
    def first() -> list[str]:
        return "".join(person.drawn[2:3]).split()[1:2]

    use(
        person,
        lambda: person.press("s"),
        lambda: until(lambda: "by held" in person.status, "another order"),
        lambda: person.press("j"),
        lambda: until(lambda: first() == ["0"], "the headings to scroll away"),
        lambda: person.press("\x1b[6~"),
        lambda: until(lambda: first() == ["21"], "the next page"),
        lambda: person.press("\x1b[5~k"),
        lambda: until(lambda: first() == ["model"], "the beginning"),
    )


def test_who_pauses_is_shown_nothing_new(person):
    def asked_no_more() -> None:
        before = person.asked
        person.press("s")
        until(lambda: "by held" in person.status, "a key to be heard")
        assert person.asked == before

    use(
        person,
        lambda: person.press("p"),
        lambda: until(lambda: "PAUSED" in person.status, "a pause"),
        asked_no_more,
        lambda: person.press("p"),
        lambda: until(lambda: "PAUSED" not in person.status, "the end of the pause"),
    )


def test_a_new_size_is_used_at_once(person):
    def shrink() -> None:
        until(lambda: len(person.drawn) == 24, "a full screen")
        person.resize(10, 40)
        os.kill(os.getpid(), signal.SIGWINCH)
        until(lambda: len(person.drawn) == 10, "a smaller one")
        assert max(map(len, person.drawn[2:9])) <= 40

    use(person, shrink, interval=3600)


def test_an_api_that_is_away_is_waited_for(person):
    def leave() -> None:
        person.away = True

    def come_back() -> None:
        person.away = False

    use(
        person,
        lambda: until(lambda: len(person.drawn) > 2, "GPUs"),
        leave,
        lambda: until(lambda: "NOT UP TO DATE" in person.status, "word of it"),
        lambda: until(lambda: "gpu1" in "".join(person.drawn), "what was known before"),
        come_back,
        lambda: until(lambda: "NOT UP" not in person.status, "news"),
    )
