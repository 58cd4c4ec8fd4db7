# SPDX-License-Identifier: Apache-2.0
"""Commands whose output nobody gets: what they have made is given back, and their exit status says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gsaas.db import models
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

PROGRAM = "from gsaasclient.cli.main import main\n\nraise SystemExit(main())"
FULL = "No space left on device"
SHARED = ("-ncgpus=1", "-poolmem=64", "-mode=shared")


@contextmanager
def broken(how: str) -> Iterator[int]:
    """A file that nothing can be written to: of a full disk, or whose reader has ended."""
    if how == "full":
        descriptor = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, descriptor = os.pipe()
        os.close(reader)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def start(
    desk, *words: str, closed: str = "", encoding: str = "utf-8", **files: Any
) -> subprocess.Popen[str]:
    """Start `gsaas` in a process of its own; *closed* are redirections of a shell that close its standard files."""
    script = f'exec "$@" {closed}'
    return subprocess.Popen(
        ["sh", "-c", script, "sh", sys.executable, "-c", PROGRAM, *words],
        env={
            **os.environ,
            "GSAAS_CREDENTIALS": str(desk.credentials),
            "PYTHONIOENCODING": encoding,
        },
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **files},
    )


def run(desk, *words: str, **more: Any) -> tuple[int, str, str]:
    """Return its exit status, its output and its error output."""
    process = start(desk, *words, **more)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out or "", err or ""


def run_without(desk, name: str, how: str, *words: str) -> tuple[int, str, str]:
    """Run it with its standard file *name* closed, or `broken`."""
    if how == "closed":
        return run(desk, *words, closed={"stdout": ">&-", "stderr": "2>&-"}[name])
    with broken(how) as file:
        return run(desk, *words, **{name: file})


def statuses(desk, kind: type = models.LeaseRow) -> list[str]:
    with desk.world.database.read() as session:
        return [row.status for row in session.query(kind)]


OUTPUTS = [
    (),
    ("-f", "json"),
    ("-f", "yaml"),
    ("-f", "csv"),
    ("-f", "value", "-c", "id"),
    ("-c", "id"),
]


@pytest.mark.parametrize("how", ["closed", "full", "ended"])
@pytest.mark.parametrize("form", OUTPUTS, ids=lambda form: "-".join(form) or "text")
def test_an_allocation_that_cannot_be_told_is_released(desk, how, form):
    words = ("alloc", *SHARED, *form)
    status, _, err = run_without(desk, "stdout", how, *words)
    assert status == 1
    assert "is given back" in err
    assert "unexpected" not in err
    assert {"closed": "Bad file descriptor", "full": FULL, "ended": "has ended"}[how] in err
    assert statuses(desk) == ["RELEASED"]


@pytest.mark.parametrize("how", ["closed", "full", "ended"])
@pytest.mark.parametrize(
    "words", [("-l", *SHARED), ("-l", *SHARED, "-nowait", "-f=value", "-c=id")]
)
def test_a_launch_that_cannot_be_told_is_ended(desk, how, words):
    status, _, err = run_without(desk, "stdout", how, *words)
    assert (status, "is given back" in err) == (1, True)
    until(lambda: statuses(desk) == ["RELEASED"])


@pytest.mark.parametrize("how", ["closed", "full", "ended"])
def test_a_reservation_that_cannot_be_told_is_cancelled(desk, how):
    words = ("reserve", *SHARED, "-end=2040-01-01", "-f=json")
    status, _, err = run_without(desk, "stdout", how, *words)
    assert (status, "is given back" in err) == (1, True)
    assert statuses(desk, models.ReservationRow) == ["CANCELLED"]


@pytest.mark.parametrize("form", ["json", "yaml", "csv", "table"])
def test_a_launch_with_a_name_that_the_terminal_cannot_show_is_ended(desk, form):
    columns = ("-c=id", "-c=name") if form == "csv" else ()
    words = ("-l", *SHARED, "-name=名前", f"-f={form}", *columns)
    status, _, err = run(desk, *words, encoding="ascii")
    assert (status, "is given back" in err, "unexpected" in err) == (1, True, False)
    until(lambda: statuses(desk) == ["RELEASED"])


def test_with_all_files_closed_nothing_is_left_and_the_status_says_so(desk):
    assert run(desk, "alloc", *SHARED, closed="<&- >&- 2>&-")[0] == 1
    assert statuses(desk) == ["RELEASED"]


@pytest.mark.parametrize("words", [("alloc", *SHARED), ("-l", *SHARED)])
@pytest.mark.parametrize("how", ["closed", "full", "ended"])
def test_remarks_that_cannot_be_written_change_nothing(desk, words, how):
    status, out, _ = run_without(desk, "stderr", how, *words)
    assert status == 0
    assert ("GSAAS_LEASE=" if words[0] == "alloc" else "ACTIVE") in out
    assert statuses(desk) == ["ACTIVE"]


def test_errors_that_cannot_be_written_are_in_the_status(desk):
    for closed in ("2>&-", "2>/dev/full"):
        assert run(desk, "show", "nothing", closed=closed)[:2] == (1, "")
        assert run(desk, "alloc", "-ncgpus=99", closed=closed)[:2] == (4, "")
        assert run(desk, closed=closed)[:2] == (2, "")


@pytest.mark.parametrize("words", [("list",), ("list", "-f=json"), ("--help",), ("limits",)])
def test_output_that_cannot_be_written_is_an_error_and_a_reader_that_has_ended_is_none(desk, words):
    with broken("full") as output:
        status, _, err = run(desk, *words, stdout=output)
    assert (status, err) == (1, f"gsaas: the output could not be written: {FULL}\n")
    with broken("ended") as output:
        assert run(desk, *words, stdout=output) == (0, "", "")


@contextmanager
def inherited(number: signal.Signals, handler: signal.Handlers) -> Iterator[None]:
    """What is started meanwhile inherits this, whatever the tests have from who started them, such as nohup."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_allocation_that_a_signal_ends_is_released(desk, number):
    desk.world.engine.idle = True  # so that the lease is waited for
    process = start(desk, "alloc", *SHARED, "-on=compute1")
    until(lambda: statuses(desk) == ["CLAIMED"])
    process.send_signal(number)
    assert process.wait(timeout=PATIENCE) == 130
    until(lambda: statuses(desk) != ["CLAIMED"])
    with suppress(BrokenPipeError):
        process.communicate()


def test_a_launch_that_a_signal_ends_names_the_lease_that_goes_on(desk):
    desk.world.engine.idle = True
    process = start(desk, "-l", *SHARED)
    until(lambda: statuses(desk) == ["CLAIMED"])
    with desk.world.database.read() as session:
        (lease_id,) = session.query(models.LeaseRow.id).one()
    # Before the command has the answer to its request, it has no lease to name, and gives it back.
    until(lambda: desk.world.subscriptions.has_subscribers(lease_id))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert f"gsaas -t -id=lease-{lease_id[:8]} ends it" in err


def test_a_signal_that_is_ignored_stays_so(desk):
    """As under nohup."""
    desk.world.engine.idle = True
    with inherited(signal.SIGHUP, signal.SIG_IGN):
        process = start(desk, "alloc", *SHARED, "-on=compute1")
    until(lambda: statuses(desk) == ["CLAIMED"])
    process.send_signal(signal.SIGHUP)
    desk.world.engine.idle = False
    desk.world.engine.settle()
    out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "GSAAS_LEASE=" in out) == (0, True)


@pytest.mark.parametrize("program", ["gsaas", "gsaas-cli"])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_runs_whatever_its_caller_has_closed(desk, programs, tmp_path, program, closed):
    """No connection of the launcher takes the number of a standard file, which messages are written to."""
    seen, go = tmp_path / "seen", tmp_path / "go"
    command = f"touch {seen}; until [ -e {go} ]; do sleep 0.02; done; exit 7"
    process = subprocess.Popen(
        ["sh", "-c", f'exec "$@" {closed}', "sh", programs / program, "run", *SHARED]
        + ["--", "sh", "-c", command],
        env={
            **os.environ,
            "GSAAS_CREDENTIALS": str(desk.credentials),
            "ASAN_OPTIONS": "detect_leaks=0",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: seen.exists() or process.poll() is not None)
    files = Path("/proc", str(process.pid), "fd")
    led_to = {str((files / str(number)).readlink()) for number in range(3)}
    go.touch()
    assert process.wait(timeout=PATIENCE) == 7
    assert led_to == {"/dev/null"}
    assert statuses(desk) == ["RELEASED"]


def test_output_that_is_not_buffered_and_cannot_be_written_is_no_unexpected_error():
    with broken("full") as output:
        ended = subprocess.run(
            [sys.executable, "-u", "-c", PROGRAM, "version"],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (
        1,
        f"gsaas: the output could not be written: {FULL}\n",
    )
