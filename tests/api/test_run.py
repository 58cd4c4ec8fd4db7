# SPDX-License-Identifier: Apache-2.0
"""`gsaas run`, in C and in Python alike: what the command gets, what its caller gets, and what is given back."""

from __future__ import annotations

import datetime
import json
import os
import pty
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import flask
import pytest
from oslo_utils import timeutils

from gsaas.db import leases, models
from tests.api.server import serving
from tests.api.world import World, token
from tests.support.launcher import Launcher
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.slow

ONE = ("-ncgpus=1", "-poolmem=1024", "-mode=shared", "--")
ALL = ("-ncgpus=8", "--")


@pytest.fixture(params=["gsaas", "gsaas-cli"])
def launcher(request: pytest.FixtureRequest, programs: Path, tmp_path: Path) -> Launcher:
    return Launcher(programs / request.param, tmp_path / "credentials.json")


@pytest.fixture
def c_launcher(programs: Path, tmp_path: Path) -> Launcher:
    return Launcher(programs / "gsaas", tmp_path / "credentials.json")


@pytest.fixture
def api(world: World, launcher: Launcher) -> Iterator[World]:
    """The API, and the launcher with a member's credentials for it."""
    with serving(world.app) as url:
        launcher.use(url, token("member"))
        yield world


@contextmanager
def terminal() -> Iterator[tuple[int, Iterator[str]]]:
    """A terminal to write to, and the lines that arrive there."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, newline="\n") as lines, os.fdopen(theirs, "w"):
        yield theirs, iter(lines.readline, "")


def statuses(world: World) -> list[str]:
    with world.database.read() as session:
        return [lease.status for lease in session.query(models.LeaseRow)]


def used(world: World) -> int:
    with world.database.read() as session:
        return sum(gpu.used_mb for gpu in session.query(models.GpuRow))


def first_line(process) -> str:
    return process.stdout.readline().strip()


def test_the_command_gets_the_environment_and_its_caller_the_status(api: World, launcher: Launcher):
    launcher.environment = {"RCUDA_DEVICE_COUNT": "99", "MINE": "kept"}
    ran = launcher.run(*ONE, "sh", "-c", 'env; printf "%s|" "$@"; exit 7', "sh", "a b", "--", "")
    assert (ran.returncode, ran.stderr) == (7, "")
    lines = ran.stdout.splitlines()
    assert "MINE=kept" in lines
    assert [line for line in lines if line.startswith("RCUDA_DEVICE_COUNT=")] == [
        "RCUDA_DEVICE_COUNT=1"
    ]
    assert lines[-1] == "a b|--||"
    with api.database.read() as session:
        lease = session.query(models.LeaseRow).one()
    assert f"GSAAS_LEASE={lease.id}" in lines
    assert (lease.status, lease.memory_mb, lease.mode) == ("RELEASED", 1024, "shared")
    assert used(api) == 0


def test_the_cgpus_are_claimed_while_the_command_runs_and_not_longer(
    api: World, launcher: Launcher, tmp_path: Path
):
    gate = tmp_path / "gate"
    process = launcher.start(
        *ALL, "sh", "-c", f"echo begun; until [ -e {gate} ]; do sleep 0.02; done"
    )
    assert first_line(process) == "begun"
    assert (statuses(api), used(api)) == (["ACTIVE"], 8 * 8192)
    gate.touch()
    assert process.wait(timeout=30) == 0
    assert (statuses(api), used(api)) == (["RELEASED"], 0)


def test_a_command_that_a_signal_ends_gives_the_exit_status_of_shells(
    api: World, launcher: Launcher
):
    assert launcher.run(*ONE, "sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL
    assert statuses(api) == ["RELEASED"]


def test_the_command_gets_no_connection_of_the_launcher_and_signals_as_they_were(
    api: World, launcher: Launcher
):
    ran = launcher.run(*ONE, "sh", "-c", "ls -l /proc/$$/fd; grep SigIgn /proc/$$/status")
    assert ran.returncode == 0
    assert "socket:" not in ran.stdout
    assert "anon_inode:" not in ran.stdout
    ignored = int(ran.stdout.splitlines()[-1].removeprefix("SigIgn:"), 16)
    assert not ignored >> (signal.SIGPIPE - 1) & 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_to_the_launcher_is_forwarded_to_the_command(
    api: World, launcher: Launcher, number: signal.Signals
):
    script = f"trap 'exit 9' {number:d}; echo begun; while :; do sleep 0.02; done"
    process = launcher.start(*ONE, "sh", "-c", script)
    assert first_line(process) == "begun"
    process.send_signal(number)
    assert process.wait(timeout=30) == 9
    assert statuses(api) == ["RELEASED"]


def test_the_command_of_a_killed_launcher_is_killed_and_the_lease_ends(
    api: World, launcher: Launcher
):
    process = launcher.start(*ONE, "sh", "-c", "echo $$; exec sleep 600")
    command = Path("/proc", first_line(process))
    process.kill()
    process.wait(timeout=30)
    until(lambda: not command.exists() or "(zombie)" in (command / "status").read_text())
    with api.database.write() as session:  # a minute later
        lease = session.query(models.LeaseRow).one()
        assert lease.status == "ACTIVE"
        lease.kept_until = timeutils.utcnow() - datetime.timedelta(seconds=1)
    assert api.claims.run_audit() == [lease.id]
    assert used(api) == 0


@pytest.mark.parametrize(
    ("command", "status"), [("/no/such/program", 127), ("/etc/passwd", 126), ("/etc", 126)]
)
def test_a_command_that_cannot_be_run_leaves_no_claim(
    api: World, launcher: Launcher, command: str, status: int
):
    ran = launcher.run(*ONE, command)
    assert ran.returncode == status
    assert f"gsaas: {command} cannot be run" in ran.stderr
    assert statuses(api) == ["RELEASED"]


def test_busy_and_impossible_have_different_statuses(api: World, launcher: Launcher):
    api.launch("member", count=8)
    busy = launcher.run(*ALL, "true")
    never = launcher.run("-ncgpus=9", "--", "true")
    assert (busy.returncode, never.returncode) == (3, 4)
    assert busy.stderr.startswith("gsaas: ")
    assert never.stderr.startswith("gsaas: ")
    assert busy.stderr != never.stderr


@pytest.fixture
def hourly(api: World) -> None:
    """All GPUs are in use, and the last lease had them for an hour."""
    first = api.launch("member", count=8)["id"]
    with api.database.write() as session:
        begun = timeutils.utcnow() - datetime.timedelta(hours=1)
        leases.update(session.connection(), first, claimed_at=begun)
    api.call("member", "DELETE", f"/v1/leases/{first}")
    api.engine.settle()
    api.launch("member", count=8)


@pytest.mark.usefixtures("hourly")
def test_a_refusal_says_how_long_the_request_would_wait(launcher: Launcher):
    assert "  or wait with -wait: about 60 min\n" in launcher.run(*ALL, "true").stderr


@pytest.mark.usefixtures("hourly")
@pytest.mark.parametrize("launcher", ["gsaas"], indirect=True)  # test_cli_queue tries the other
def test_a_wait_on_a_terminal_has_an_estimate(launcher: Launcher):
    with terminal() as (stderr, lines):
        process = launcher.start("-ncgpus=8", "-wait", "--", "true", stderr=stderr)
        assert "waiting for cGPUs: 1 of 1 in the queue, about 60 min" in next(lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 130


def test_a_value_that_the_api_refuses_is_a_mistake_of_the_line(api: World, launcher: Launcher):
    ran = launcher.run("-ncgpus=1", "-name=x" + "y" * 255, "--", "true")
    assert ran.returncode == 2
    assert ran.stderr.startswith('gsaas: -name is "xyyy')
    assert statuses(api) == []


def test_a_note_says_which_of_two_credentials_is_used(api: World, launcher: Launcher):
    launcher.environment = {"OS_CLOUD": "mine"}
    ran = launcher.run(*ONE, "true")
    assert (ran.returncode, ran.stderr) == (
        0,
        "note: GSAAS_CREDENTIALS is used, and not the OS_ variables\n",
    )


@pytest.mark.parametrize("memory", ["1024", "1G"])
def test_memory_without_a_mode_is_a_share(api: World, launcher: Launcher, memory: str):
    ran = launcher.run("-ncgpus=1", f"-poolmem={memory}", "--", "true")
    assert ran.returncode == 0, ran.stderr
    with api.database.read() as session:
        (lease,) = session.query(models.LeaseRow)
        assert (lease.mode, lease.memory_mb) == ("shared", 1024)


@pytest.mark.parametrize(
    "words",
    [
        ("-ncgpus=1",),
        ("-ncgpus=1", "--"),
        ("--", "true"),
        ("-ncgpus=0", "--", "true"),
        ("-ncgpus=1", "-ncgpus=2", "--", "true"),
        ("-ncgpus=1", "-poolmem=5", "-mode=exclusive", "--", "true"),
        ("-ncgpus=1", "-poolmem=10m", "--", "true"),
        ("-ncgpus=1", "-mode=shared", "--", "true"),
        ("-ncgpus=1", "-mode=best", "--", "true"),
        ("-ncgpus=1", "-image=debian", "--", "true"),
        ("-ncgpus=1", "true"),
    ],
)
def test_an_invalid_line_requests_nothing(api: World, launcher: Launcher, words):
    ran = launcher.run(*words)
    assert ran.returncode == 2
    assert "see: gsaas run --help" in ran.stderr
    assert statuses(api) == []


def test_a_token_that_the_api_does_not_accept_is_the_launchers_failure(
    api: World, launcher: Launcher, world: World
):
    url = json.loads(launcher.credentials.read_text())["url"]
    launcher.use(url, "x" * 40)
    ran = launcher.run(*ONE, "true")
    assert ran.returncode == 125
    assert "token" in ran.stderr


def test_an_api_that_does_not_answer_is_the_launchers_failure(launcher: Launcher):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    launcher.use(url, token("member"))
    ran = launcher.run(*ONE, "true")
    assert ran.returncode == 125
    assert f"{url} does not answer: Connection refused" in ran.stderr


def test_credentials_that_other_users_can_read_are_refused(api: World, launcher: Launcher):
    launcher.credentials.chmod(0o644)
    ran = launcher.run(*ONE, "true")
    assert ran.returncode == 125
    assert "chmod 600" in ran.stderr


def test_an_api_that_goes_away_does_not_change_the_exit_status_of_the_command(
    world: World, launcher: Launcher, tmp_path: Path
):
    gate = tmp_path / "gate"
    with serving(world.app) as url:
        launcher.use(url, token("member"))
        script = f"echo begun; until [ -e {gate} ]; do sleep 0.02; done; exit 5"
        process = launcher.start(*ONE, "sh", "-c", script)
        assert first_line(process) == "begun"
    gate.touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 5
    assert "could not be released; it ends by itself within 60 s" in err
    assert statuses(world) == ["ACTIVE"]


def test_a_waiting_command_runs_when_gpus_are_released(api: World, launcher: Launcher):
    lease = api.launch("member", count=8)
    process = launcher.start("-ncgpus=8", "-wait", "--", "sh", "-c", "exit 6")
    until(lambda: "QUEUED" in statuses(api))
    api.call("member", "DELETE", f"/v1/leases/{lease['id']}")
    api.engine.settle()
    assert process.wait(timeout=30) == 6
    assert set(statuses(api)) == {"RELEASED"}


@pytest.mark.parametrize("launcher", ["gsaas"], indirect=True)
def test_without_a_terminal_a_wait_takes_one_request_and_the_release_another(
    api: World, launcher: Launcher
):
    held = api.launch("member", count=8)
    process = launcher.start("-ncgpus=8", "-wait", "--", "true")
    until(lambda: "QUEUED" in statuses(api))
    methods: list[str] = []

    def note(_: flask.Flask) -> None:
        methods.append(flask.request.method)

    with flask.request_started.connected_to(note, api.app):
        api.claims.release(held["id"])
        assert process.wait(timeout=30) == 0
    assert methods == ["DELETE"]


@pytest.mark.parametrize("launcher", ["gsaas"], indirect=True)  # test_cli_queue tries the other
def test_an_interrupted_wait_gives_up_the_place(api: World, launcher: Launcher):
    api.launch("member", count=8)
    process = launcher.start("-ncgpus=8", "-wait", "--", "true")
    until(lambda: "QUEUED" in statuses(api))
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    until(lambda: "QUEUED" not in statuses(api))


def test_a_wait_that_ends_is_busy(api: World, launcher: Launcher):
    api.launch("member", count=8)
    assert launcher.run("-ncgpus=8", "-wait=1", "--", "true").returncode == 3


# An API that hangs


@pytest.fixture
def held(api: World) -> Iterator[threading.Event]:
    """Until this is set, the API answers no launch, but those that were sent again."""
    free, first = threading.Event(), threading.Lock()

    def hold(_: flask.Flask) -> None:
        if flask.request.method == "POST" and first.acquire(blocking=False):
            assert free.wait(PATIENCE)

    with flask.request_started.connected_to(hold, api.app):
        yield free
        free.set()


WAITING = "waiting for the GSaaS API to answer POST /v1/leases (Ctrl-C ends the wait)"


def test_on_a_terminal_a_launch_that_hangs_says_what_it_waits_for(
    held: threading.Event, launcher: Launcher
):
    with terminal() as (stderr, lines):
        process = launcher.start(*ONE, "sh", "-c", "exit 7", stderr=stderr)
        assert WAITING in next(lines)
        held.set()
        assert process.wait(timeout=PATIENCE) == 7


def test_an_interrupt_ends_a_launch_that_hangs_and_nothing_is_left(
    api: World, held: threading.Event, launcher: Launcher
):
    with terminal() as (stderr, lines):
        process = launcher.start(*ONE, "true", stderr=stderr)
        assert WAITING in next(lines)
        process.send_signal(signal.SIGINT)
        assert "interrupted" in (said := next(lines))
        assert "released" in said
        assert process.wait(timeout=PATIENCE) == 130
    assert statuses(api) == ["RELEASED"]


def test_an_interrupt_of_an_api_that_hangs_for_good_says_what_may_be_left(launcher: Launcher):
    with socket.create_server(("127.0.0.1", 0)) as silent, terminal() as (stderr, lines):
        launcher.use(f"http://127.0.0.1:{silent.getsockname()[1]}", token("member"))
        process = launcher.start(*ONE, "true", stderr=stderr)
        assert WAITING in next(lines)
        process.send_signal(signal.SIGINT)
        assert "within 60 s" in next(lines)
        assert process.wait(timeout=PATIENCE) == 130


# In a reservation


@pytest.fixture
def reservation(api: World) -> str:
    """The id of a reservation of all GPUs, which has begun."""
    body = {"reservation": {"cgpus": {"count": 8}, "end": "2100-01-01"}}
    newest = {"OpenStack-API-Version": "gpu-scheduling latest"}
    made = api.call("member", "POST", "/v1/reservations", body, headers=newest)
    api.claims.reservations.audit()
    return made.json["reservation"]["id"]


def test_a_command_runs_in_a_reservation(api: World, launcher: Launcher, reservation: str):
    assert launcher.run(*ALL, "true").returncode == 3
    ran = launcher.run(f"-reservation={reservation}", *ALL, "sh", "-c", "exit 6")
    assert (ran.returncode, ran.stderr) == (6, "")
    with api.database.read() as session:
        lease = session.query(models.LeaseRow).one()
    assert (lease.reservation_id, lease.status) == (reservation, "RELEASED")


@pytest.mark.parametrize("launcher", ["gsaas"], indirect=True)
def test_in_a_reservation_the_command_waits_for_no_python(
    api: World, launcher: Launcher, reservation: str, tmp_path: Path
):
    folder = tmp_path / "bin"
    shutil.copytree(launcher.program.parent, folder, ignore=shutil.ignore_patterns("gsaas-cli"))
    launcher.program = folder / "gsaas"
    assert launcher.run("-reservation", reservation, *ALL, "true").returncode == 0


def test_no_command_runs_in_a_reservation_that_is_unknown_or_over(
    api: World, launcher: Launcher, reservation: str
):
    unknown = launcher.run("-reservation=none", *ALL, "true")
    assert (unknown.returncode, statuses(api)) == (125, [])
    assert "none" in unknown.stderr
    api.claims.reservations.cancel(reservation)
    over = launcher.run(f"-reservation={reservation}", *ALL, "true")
    assert (over.returncode, statuses(api)) == (125, [])
    assert f"reservation {reservation} is CANCELLED" in over.stderr


@pytest.mark.parametrize(("words", "seconds"), [(["-for=90"], 90), (["-for", "1h30m"], 5400)])
def test_a_command_has_its_cgpus_for_as_long_as_it_says(
    api: World, launcher: Launcher, words, seconds
):
    assert launcher.run(*words, *ONE, "true").returncode == 0
    with api.database.read() as session:
        (lease,) = session.query(models.LeaseRow)
    assert lease.duration == seconds
    assert lease.ends_at - lease.claimed_at == datetime.timedelta(seconds=seconds)


def test_where_a_library_is_missing_python_runs_the_command(
    world: World, c_launcher: Launcher, tmp_path: Path
):
    folder = tmp_path / "bin"
    shutil.copytree(c_launcher.program.parent, folder)
    (folder / "gsaas-run.so").write_bytes(b"no shared object")
    c_launcher.program = folder / "gsaas"
    with serving(world.app) as url:
        c_launcher.use(url, token("member"))
        ran = c_launcher.run(*ONE, "sh", "-c", "exit 7")
    assert (ran.returncode, ran.stderr) == (7, "")


# Invalid answers, which the launcher in C has to survive


def answering(answer: bytes) -> tuple[str, Callable[[], None]]:
    """Start a server that gives the same answer to every request; return its URL, and the function that stops it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()

    def stop() -> None:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()

    return f"http://127.0.0.1:{listener.getsockname()[1]}", stop


def http(body: str, head: str = "HTTP/1.1 201 Created") -> bytes:
    content = body.encode("utf-8", "surrogateescape")
    return f"{head}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


GOOD = '{"lease": {"id": "0-0", "status": "ACTIVE"}, "environment": {"A": "%s"}}'
HOSTILE = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 201 Crea",
    "no http": b"SSH-2.0-OpenSSH\r\n\r\n",
    "less than it says": b"HTTP/1.1 201 Created\r\nContent-Length: 900\r\n\r\n{",
    "more than there is room for": b"HTTP/1.1 201 Created\r\nContent-Length: 99999999999999999999\r\n\r\n{",
    "bad chunks": b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a huge chunk": b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
    "empty": http(""),
    "no object": http("[]"),
    "an open string": http('{"lease'),
    "an open escape": http('{"lease": "\\'),
    "a short escape": http('{"lease": "\\u00'),
    "deep": http("[" * 100_000),
    "no environment": http('{"lease": {"id": "0-0", "status": "ACTIVE"}}'),
    "no status": http('{"lease": {"id": "0-0"}}'),
    "an id that is a path": http('{"lease": {"id": "../../etc", "status": "ACTIVE"}}'),
    "NUL in a value": http(GOOD % "\\u0000"),
    "half a character": http(GOOD % "\\ud800"),
    "a bare NUL": http('{"lease": \0}'),
    "an error without words": http('{"errors": []}', "HTTP/1.1 409 Conflict"),
    "an error page": http("<html>", "HTTP/1.1 502 Bad Gateway"),
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE.keys())
def test_an_invalid_answer_is_a_failure_and_not_a_crash(c_launcher: Launcher, answer: bytes):
    url, stop = answering(answer)
    try:
        c_launcher.use(url, token("member"))
        ran = c_launcher.run(*ONE, "true")
    finally:
        stop()
    assert ran.returncode == 125
    assert ran.stderr.startswith("gsaas: ")


def test_the_refusal_of_a_gate_is_printed(c_launcher: Launcher):
    gate, close_gate = answering(b"refused gsaas.grant.used the grant has been used\n")
    environment = {"GSAAS_GATE": gate.removeprefix("http://"), "GSAAS_GRANT": "g", "A": ""}
    body = {"lease": {"id": "0-0", "status": "ACTIVE"}, "environment": environment}
    url, stop = answering(http(json.dumps(body)))
    try:
        c_launcher.use(url, token("member"))
        ran = c_launcher.run(*ONE, "true")
    finally:
        stop()
        close_gate()
    assert ran.returncode == 125
    assert "the grant has been used" in ran.stderr


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        (None, "/opt/rcuda:/opt/cuda"),
        ("", "/opt/rcuda:/opt/cuda"),
        ("/home/u/lib", "/opt/rcuda:/opt/cuda:/home/u/lib"),
        ("/opt/rcuda", "/opt/rcuda:/opt/cuda:/opt/rcuda"),
        ("/a:/opt/rcuda:/opt/cuda", "/a:/opt/rcuda:/opt/cuda"),
        ("/a/opt/rcuda:/opt/cuda:/b", "/opt/rcuda:/opt/cuda:/a/opt/rcuda:/opt/cuda:/b"),
    ],
)
def test_the_libraries_of_the_lease_come_before_those_of_the_user(
    launcher: Launcher, tmp_path: Path, own: str | None, wanted: str
):
    world = World.build(tmp_path, settings="[remoting]\nlibrary_path = /opt/rcuda:/opt/cuda\n")
    launcher.environment = {} if own is None else {"LD_LIBRARY_PATH": own}
    with serving(world.app) as url:
        launcher.use(url, token("member"))
        ran = launcher.run(*ONE, "env")
    lines = ran.stdout.splitlines()
    assert [line for line in lines if line.startswith("LD_LIBRARY_PATH=")] == [
        f"LD_LIBRARY_PATH={wanted}"
    ]
    assert "RCUDA_DEVICE_COUNT=1" in lines


WORDS = (GOOD % "\\u00e9\\ud83d\\ude00\\n\\/").encode()
CHUNKS = b"".join(
    f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in (WORDS[:30], WORDS[30:], b"")
)


@pytest.mark.parametrize(
    "answer",
    [
        http(WORDS.decode()),
        b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNKS,
        b"HTTP/1.0 201 Created\r\n\r\n" + WORDS,
    ],
    ids=["plain", "chunked", "until it closes"],
)
def test_every_transfer_encoding_is_understood(c_launcher: Launcher, answer: bytes):
    url, stop = answering(answer)
    try:
        c_launcher.use(url, token("member"))
        ran = c_launcher.run(*ONE, "sh", "-c", 'printf %s "$A"')
    finally:
        stop()
    assert (ran.returncode, ran.stdout) == (0, "é😀\n/")
