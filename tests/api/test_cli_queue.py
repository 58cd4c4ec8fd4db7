# SPDX-License-Identifier: Apache-2.0
"""Waiting on the command line: its exit statuses, its progress, and what an interrupt gives back."""

from __future__ import annotations

import datetime
import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from oslo_utils import timeutils

from gsaas.db import leases
from gsaasclient import Credentials, UnreachableError
from gsaasclient.cli import queue
from tests.support.waiting import until

WHOLE = ("-ncgpus=1",)
ALL = ("-ncgpus=8",)


def alloc(desk, *words) -> str:
    status, out, err = desk.type("alloc", *words)
    assert status == 0, err
    return next(
        line.split("=")[1].strip("'") for line in out.splitlines() if "GSAAS_LEASE=" in line
    )


def release(desk, lease_id: str) -> None:
    desk.world.call("member", "DELETE", f"/v1/leases/{lease_id}")


def waiting(desk) -> list[str]:
    places = desk.world.call("admin", "GET", "/v1/queue").json["places"]
    return [place["lease_id"] for place in places]


def when_a_client_waits(desk, act) -> threading.Thread:
    """Call *act* in a thread with the first lease for which a client waits; return the thread."""

    def watch() -> None:
        (lease_id,) = until(lambda: waiting(desk), "a place")
        until(lambda: desk.world.subscriptions.has_subscribers(lease_id), "a client to wait")
        act(lease_id)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_a_refusal_says_how_long_the_request_would_wait(desk):
    first = desk.read("alloc", "-ncgpus=8", "-name=first")["lease"]["id"]
    with desk.world.database.write() as session:
        begun = timeutils.utcnow() - datetime.timedelta(hours=1)
        leases.update(session.connection(), first, claimed_at=begun)
    desk.type("release", "first")
    desk.read("alloc", "-ncgpus=8")
    for words in (("alloc",), ("-l",)):
        status, _, err = desk.type(*words, "-ncgpus=1")
        assert (status, "  or wait with -wait: about 60 min\n" in err) == (3, True)


@pytest.mark.parametrize("command", [("-l",), ("alloc",), ("check",)], ids=" ".join)
def test_busy_and_impossible_end_with_statuses_of_their_own(desk, command):
    alloc(desk, *ALL)

    assert desk.type(*command, *WHOLE)[0] == 3
    assert desk.type(*command, "-ncgpus=9")[0] == 4


@pytest.mark.parametrize("command", [("-l",), ("alloc",)], ids=" ".join)
def test_a_waiting_client_gets_gpus_that_are_released(desk, command):
    lease_id = alloc(desk, *ALL)
    thread = when_a_client_waits(desk, lambda _: release(desk, lease_id))

    status, _, err = desk.type(*command, *WHOLE, "-wait")

    thread.join()
    assert status == 0, err
    assert "QUEUED: 1 of 1\n" in err


@pytest.mark.slow
def test_a_wait_can_end_without_gpus(desk):
    alloc(desk, *ALL)

    status, out, err = desk.type("alloc", *WHOLE, "-wait", "1")

    assert (status, out) == (3, "")
    assert "no GPUs became free for it" in err
    assert waiting(desk) == []


def test_a_request_that_can_never_fit_does_not_wait(desk):
    assert desk.type("alloc", "-ncgpus=9", "-wait")[0] == 4


def test_an_interrupt_gives_up_the_place(desk):
    alloc(desk, *ALL)
    environment = {**os.environ, "GSAAS_CREDENTIALS": str(desk.credentials)}
    client = subprocess.Popen(
        [Path(sys.executable).with_name("gsaas"), "alloc", *WHOLE, "-wait"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    waits = (
        client.stderr.readline()
    )  # from here on it knows its place; before, it gives back what it may have got
    assert waits == "QUEUED: 1 of 1\n"
    client.send_signal(signal.SIGINT)

    out, err = client.communicate(timeout=60)

    assert (client.returncode, out) == (130, "")
    assert "interrupted; the place in the queue is released" in err
    assert waiting(desk) == []


def test_an_interrupt_while_the_api_is_away_ends_and_says_how_to_give_up_the_place(monkeypatch):
    def interrupted(*_) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(queue, "_poll", interrupted)
    away = queue.Client(Credentials("http://127.0.0.1:1", "t"))
    with pytest.raises(KeyboardInterrupt, match=r"the place in the queue is kept.*: gsaas -t 28"):
        queue.wait(away, {"id": "28", "status": "QUEUED", "queue": None})


def test_a_place_is_kept_without_a_waiting_client(desk):
    lease_id = alloc(desk, *ALL)

    lease = desk.read("-l", *WHOLE, "-wait", "-nowait")

    assert (lease["status"], lease["queue"]["position"]) == ("QUEUED", 1)
    with desk.world.database.read() as session:
        assert leases.get(session.connection(), lease["id"]).waiter_seen_at is None
    shown = desk.type("show", lease["id"])[1]
    assert "1 of 1" in shown
    release(desk, lease_id)
    assert desk.read("show", lease["id"])["status"] in ("CLAIMED", "ACTIVE")


def test_ending_a_queued_lease_reports_its_place_and_no_cgpus(desk):
    alloc(desk, *ALL)
    lease = desk.read("-l", *WHOLE, "-wait", "-nowait")

    said = desk.type("-t", f"-id={lease['id']}")

    assert said[:2] == (0, f"lease {lease['id']}  RELEASED, its place in the queue is released\n")


def test_the_queue_is_shown_in_the_order_of_turns(desk):
    assert desk.type("queue")[1] == "no request waits\n"
    alloc(desk, *ALL)
    desk.type("-l", *WHOLE, "-wait=3600", "-nowait", "-name=usual")
    desk.type("-l", *WHOLE, "-wait", "-nowait", "-priority=-1", "-name=polite")

    lines = desk.type("queue")[1].splitlines()

    assert lines[0] == "2 requests wait, 2 of your project"
    assert [line.split()[2] for line in lines[2:]] == ["usual", "polite"]
    assert desk.read("queue")["totals"] == {"length": 2, "own": 2}


def test_a_terminal_shows_the_position_and_an_estimate(desk, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(queue, "INTERACTIVE_POLL", 60)
    lease_id = alloc(desk, *ALL)
    thread = when_a_client_waits(desk, lambda _: release(desk, lease_id))

    desk.type("alloc", *WHOLE, "-wait")

    thread.join()
    assert "QUEUED (1 of 1)" in terminal.getvalue()


def test_a_client_continues_to_wait_while_the_api_is_restarted():
    lease = {"id": "x", "status": "QUEUED", "queue": None, "cgpus": {"count": 1}}
    answers = iter(
        [
            UnreachableError("the API is being restarted"),
            {"lease": lease},
            {"lease": lease | {"status": "ACTIVE"}},
        ]
    )

    class Restarting:
        def request(self, method, path, version):
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

    pauses = []
    original, queue.time.sleep = queue.time.sleep, pauses.append
    try:
        assert queue.wait(Restarting(), lease)["status"] == "ACTIVE"
    finally:
        queue.time.sleep = original
    assert len(pauses) == 2  # once for the API to return, once because it did not delay its answer


def test_the_answer_in_json_is_as_the_api_says_it(desk):
    alloc(desk, *ALL)
    desk.type("-l", *WHOLE, "-wait", "-nowait")

    assert json.loads(desk.type("queue", "-f=json")[1])["places"][0]["attended"] is False


def test_a_lease_that_got_no_gpus_in_its_time_is_told_apart_from_one_that_was_released(desk):
    alloc(desk, *ALL)
    desk.type("-l", *WHOLE, "-wait=10m", "-nowait", "-name=late")
    desk.type("-l", *WHOLE, "-wait", "-nowait", "-name=given-up")
    with desk.world.database.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE leases SET wait_until = '2020-01-01 00:00:00.000000' WHERE name = 'late'"
        )
    desk.world.claims.queue.drop_overdue()
    desk.type("-t", "given-up")
    rows = desk.type("list", "-status=RELEASED", "-c=name", "-c=status")[1].splitlines()[1:]
    assert {tuple(row.split(maxsplit=1)) for row in rows} == {
        ("late", "RELEASED, got no GPUs"),
        ("given-up", "RELEASED"),
    }
    shown = desk.type("show", "late")[1]
    assert "no GPUs became free for it in the time that it was to wait\n" in shown
