# SPDX-License-Identifier: Apache-2.0
"""A client that has lost the answer to a launch sends it again, and there is one lease, not two."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import hmac
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import sqlalchemy
from oslo_utils import timeutils

from gsaas.db import models, request_keys
from gsaasclient import Client, Credentials
from tests.api.desk import Desk
from tests.api.server import serving
from tests.api.world import World, only_error, token
from tests.support.launcher import Launcher
from tests.support.waiting import until

pytestmark = pytest.mark.slow

BODY = {"lease": {"cgpus": {"count": 2}, "server": None}}
KEY = {"Idempotency-Key": "4f0c2d0e"}


def post(world: World, caller: str = "member", body=BODY, headers=KEY, path="/v1/leases"):
    return world.call(caller, "POST", path, body, headers=headers)


def leases(world: World) -> list[models.LeaseRow]:
    with world.database.read() as session:
        return session.query(models.LeaseRow).order_by(models.LeaseRow.created_at).all()


def age(world: World, **by: float) -> None:
    with world.database.write() as session:
        for lease in session.query(models.LeaseRow):
            lease.created_at -= datetime.timedelta(**by)


def test_three_requests_with_one_key_make_one_lease(world: World):
    first, *others = [post(world) for _ in range(3)]
    assert first.status_code == 201
    for other in others:
        assert (other.status_code, other.json) == (201, first.json)
    (lease,) = leases(world)
    assert lease.id == first.json["lease"]["id"]


def test_requests_without_a_key_or_with_other_keys_make_a_lease_each(world: World):
    for headers in ({}, {}, {"Idempotency-Key": "a"}, {"Idempotency-Key": "b"}):
        assert (
            post(
                world, body={"lease": {"cgpus": {"count": 1}, "server": None}}, headers=headers
            ).status_code
            == 201
        )
    assert len(leases(world)) == 4


SECRET = {"lease": {"cgpus": {"count": 1}, "server": {"adminPass": "hunter2"}}}
A, B = ("a:" + "A" * 43, "b:" + "B" * 43)
"""Keys for grants."""


def keyed(folder: Path, *keys: str) -> World:
    """Return the API with these keys for grants, of the database in *folder*."""
    lines = "".join(f"key = {key}\n" for key in keys)
    return World.build(folder, settings=f"[grants]\n{lines}")


def with_password(password: str) -> dict:
    return {"lease": SECRET["lease"] | {"server": {"adminPass": password}}}


def guesses(body: dict) -> set[str]:
    """Return digests of *body*, and of each part of it, that can be computed without a secret."""
    lease, texts = body["lease"], set()
    for part in (body, lease, lease["server"], lease["server"]["adminPass"]):
        for more in (part, [KEY["Idempotency-Key"], part]):
            texts |= {json.dumps(more, sort_keys=True), json.dumps(more)}
    key = KEY["Idempotency-Key"].encode()
    return {
        digest
        for text in texts
        for digest in (
            hashlib.sha256(text.encode()).hexdigest(),
            hmac.digest(key, text.encode(), "sha256").hex(),
            hmac.digest(b"", text.encode(), "sha256").hex(),
        )
    }


@pytest.mark.parametrize("keys", [(), (A,)])
def test_nobody_can_try_out_passwords_with_a_copy_of_the_database(tmp_path: Path, keys):
    world = keyed(tmp_path, *keys)
    assert post(world, body=with_password("hunter2")).status_code == 202
    (lease,) = leases(world)
    assert not any(guess[8:] in lease.request_digest for guess in guesses(with_password("hunter2")))
    other = World.build(Path(tempfile.mkdtemp(dir=tmp_path)), settings=f"[grants]\nkey = {B}\n")
    post(other, body=with_password("hunter2"))
    assert leases(other)[0].request_digest != lease.request_digest


def test_without_a_key_of_the_service_the_digest_says_nothing_of_a_password(tmp_path: Path):
    digests = []
    for number, password in enumerate(("hunter2", "another")):
        (folder := tmp_path / str(number)).mkdir()
        world = keyed(folder)
        post(world, body=with_password(password))
        digests.append(leases(world)[0].request_digest)
    assert digests[0] == digests[1]


def test_with_a_key_another_password_is_another_request(tmp_path: Path):
    world = keyed(tmp_path, A)
    assert post(world, body=with_password("hunter2")).status_code == 202
    assert post(world, body=with_password("hunter3")).status_code == 409
    assert post(world, body=with_password("hunter2")).status_code == 202
    assert len(leases(world)) == 1


@pytest.mark.parametrize(
    ("before", "after", "is_told_apart"),
    [
        ((A,), (A,), True),  # another process
        ((A,), (B, A), True),
        ((B, A), (A,), False),  # the key that signed is gone
        ((A,), (), False),
        ((), (A,), True),
    ],
)
def test_a_launch_is_repeated_after_keys_have_changed(tmp_path, before, after, is_told_apart):
    first = post(keyed(tmp_path, *before), body=with_password("p")).json["lease"]["id"]
    world = keyed(tmp_path, *after)
    assert post(world, body=with_password("p")).json["lease"]["id"] == first
    other = post(world, body={"lease": SECRET["lease"] | {"name": "other"}})
    assert other.status_code == (409 if is_told_apart else 202)
    assert len(leases(world)) == 1


def test_a_launch_whose_digest_was_forgotten_is_repeated(world: World):
    """A migration forgets those of earlier releases."""
    first = post(world).json["lease"]["id"]
    with world.database.write() as session:
        session.query(models.LeaseRow).update({"request_digest": None})
    assert post(world).json["lease"]["id"] == first
    assert len(leases(world)) == 1


def test_no_server_is_another_body_than_one_with_defaults(world: World):
    assert post(world).status_code == 201
    assert post(world, body={"lease": BODY["lease"] | {"server": {}}}).status_code == 409


def test_the_order_of_the_fields_is_no_difference(world: World):
    first = post(world)
    again = post(world, body={"lease": {"server": None, "cgpus": {"count": 2}}})
    assert again.json["lease"]["id"] == first.json["lease"]["id"]


def test_another_body_with_the_same_key_is_refused_and_makes_nothing(world: World):
    lease_id = post(world).json["lease"]["id"]
    error = only_error(post(world, body={"lease": {"cgpus": {"count": 1}, "server": None}}))
    assert (error["status"], error["code"]) == (409, "gsaas.idempotency-key.reused")
    assert lease_id in error["detail"]
    assert len(leases(world)) == 1


@pytest.mark.parametrize("other", ["stranger", "manager"])
def test_a_key_belongs_to_its_user_and_project(world: World, other: str):
    first = post(world)
    second = post(world, other)
    assert second.status_code == 201
    assert second.json["lease"]["id"] != first.json["lease"]["id"]


def test_the_lease_is_returned_as_it_is_now(world: World):
    lease_id = post(world).json["lease"]["id"]
    world.call("member", "DELETE", f"/v1/leases/{lease_id}")
    again = post(world)
    assert again.status_code == 202
    assert (again.json["lease"]["id"], again.json["lease"]["status"]) == (lease_id, "RELEASED")
    assert len(leases(world)) == 1


def test_a_lease_is_returned_although_there_are_no_gpus_for_another(world: World):
    everything = {"lease": {"cgpus": {"count": 8}, "server": None}}
    first = post(world, body=everything)
    assert post(world, body=everything, headers={}).status_code == 409
    assert post(world, body=everything).json == first.json


def test_a_place_in_the_queue_is_kept_once(world: World):
    post(world, body={"lease": {"cgpus": {"count": 8}, "server": None}}, headers={})
    waiting = {"lease": {"cgpus": {"count": 1}, "server": None, "wait": None}}
    first, second = post(world, body=waiting), post(world, body=waiting)
    assert (first.status_code, first.json["lease"]["status"]) == (202, "QUEUED")
    assert second.json["lease"]["id"] == first.json["lease"]["id"]
    assert world.call("member", "GET", "/v1/queue").json["totals"]["length"] == 1


def test_a_launch_with_a_server_that_is_repeated_wakes_the_engine_again(world: World):
    """The process that claimed may have died before it did, and the engine needs the caller's token."""
    launch = {"lease": {"cgpus": {"count": 1}, "server": {}}}
    first, second = post(world, body=launch), post(world, body=launch)
    assert second.status_code == 202
    assert second.json["lease"]["id"] == first.json["lease"]["id"]
    assert world.engine.woken == [(first.json["lease"]["id"], "blue")] * 2


def test_a_key_is_free_again_after_a_day(world: World):
    first = post(world).json["lease"]["id"]
    age(world, hours=23, minutes=59)
    assert post(world).json["lease"]["id"] == first
    age(world, minutes=2)
    second = post(world, body={"lease": {"cgpus": {"count": 1}, "server": None}})
    assert second.status_code == 201
    assert [lease.request_key is None for lease in leases(world)] == [True, False]


def test_two_requests_at_once_with_a_key_that_is_free_again_make_one_lease(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    post(world)
    age(world, hours=25)
    answers = []
    find = request_keys.find

    def overtaken(*key):
        """Both requests find the key of yesterday; the other one is then answered before this one goes on."""
        monkeypatch.setattr(request_keys, "find", find)
        found = find(*key)
        answers.append(post(world))
        return found

    monkeypatch.setattr(request_keys, "find", overtaken)
    answers.append(post(world))

    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json == answers[1].json
    assert len(leases(world)) == 2  # with that of yesterday


def test_a_purge_leaves_a_key_that_is_used_again_meanwhile(world: World):
    """It reads the old keys before it clears them, and these are two statements."""
    post(world)
    age(world, hours=25)
    now = [timeutils.utcnow()]

    def use_again(connection, _cursor, statement, *_):
        if statement.startswith("UPDATE leases") and now:
            connection.execute(sqlalchemy.update(models.LeaseRow).values(created_at=now.pop()))

    with world.database.writing() as connection:
        sqlalchemy.event.listen(connection, "before_cursor_execute", use_again)
        request_keys.purge(connection, 10)

    (lease,) = leases(world)
    assert (now, lease.request_key is None) == ([], False)


def test_a_launch_that_was_refused_may_be_repeated(world: World):
    taken = post(world, body={"lease": {"cgpus": {"count": 8}, "server": None}}, headers={})
    assert post(world).status_code == 409
    world.call("member", "DELETE", f"/v1/leases/{taken.json['lease']['id']}")
    assert post(world).status_code == 201


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256, "\u00e4"])
def test_a_key_that_cannot_be_one_is_refused(world: World, key: str):
    error = only_error(post(world, headers={"Idempotency-Key": key}))
    assert (error["status"], error["code"]) == (400, "gsaas.bad-request")
    assert "Idempotency-Key" in error["detail"]
    assert leases(world) == []


class LosingProxy:
    """A proxy in front of the API that loses the answers to the first *lost* launches, and cuts their connections."""

    def __init__(self, url: str, lost: int) -> None:
        parts = urlsplit(url)
        self._api = parts.hostname, parts.port
        self.lost = lost
        self.launches = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._api) as api:
            while request := _message(client):
                api.sendall(request)
                answer = _message(api)
                if request.startswith(b"POST /v1/leases HTTP"):
                    self.launches += 1
                    if self.launches <= self.lost:
                        return
                client.sendall(answer)


def _message(connection: socket.socket) -> bytes:
    """Return a whole HTTP message with a Content-Length, or nothing at the end of the connection."""
    received = b""
    while b"\r\n\r\n" not in received:
        if not (more := connection.recv(65536)):
            return b""
        received += more
    head, _, body = received.partition(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    while len(body) < int(fields.get(b"content-length", 0)):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def losing(world: World) -> Iterator[LosingProxy]:
    with serving(world.app) as url:
        proxy = LosingProxy(url, 1)
        yield proxy
        proxy.close()


def test_the_client_repeats_a_launch_whose_answer_is_lost(world: World, losing: LosingProxy):
    answer = Client(Credentials(losing.url, token("member"))).launch(BODY["lease"])
    (lease,) = leases(world)
    assert (answer["lease"]["id"], lease.status, losing.launches) == (lease.id, "ACTIVE", 2)


@pytest.mark.parametrize("program", ["gsaas", "gsaas-cli"])
def test_gsaas_run_repeats_a_launch_whose_answer_is_lost(
    world: World, losing: LosingProxy, programs: Path, tmp_path: Path, program: str
):
    launcher = Launcher(programs / program, tmp_path / "credentials.json")
    launcher.use(losing.url, token("member"))
    ran = launcher.run("-ncgpus=1", "--", "sh", "-c", "echo $GSAAS_LEASE")
    assert (ran.returncode, ran.stderr) == (0, "")
    (lease,) = leases(world)
    assert (ran.stdout.strip(), lease.status, losing.launches) == (lease.id, "RELEASED", 2)


@pytest.mark.parametrize("program", ["gsaas", "gsaas-cli"])
def test_a_launch_is_repeated_once_and_not_for_ever(
    world: World, losing: LosingProxy, programs: Path, tmp_path: Path, program: str
):
    losing.lost = 10
    launcher = Launcher(programs / program, tmp_path / "credentials.json")
    launcher.use(losing.url, token("member"))
    ran = launcher.run("-ncgpus=1", "--", "true")
    assert ran.returncode != 0
    assert "does not answer" in ran.stderr
    assert losing.launches == 2
    assert [lease.keepalive for lease in leases(world)] == [60]  # it ends by itself


def test_an_interrupt_while_the_api_is_asked_leaves_no_lease(
    world: World, desk: Desk, monkeypatch: pytest.MonkeyPatch
):
    answered = Client.request
    lost = []

    def lose(self, method, path, *more, **named):
        answer = answered(self, method, path, *more, **named)
        if method == "POST" and not lost:
            lost.append(answer)
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(Client, "request", lose)
    status, _, err = desk.type("alloc", "-ncgpus=1")
    assert status != 0
    assert "the cGPUs are released" in err
    assert [lease.status for lease in leases(world)] == ["RELEASED"]


# gsaas alloc -while=PID


@pytest.fixture
def shell(world: World, programs: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A shell that has taken cGPUs for as long as it lives, and that waits for its input to end."""
    launcher = Launcher(programs / "gsaas-cli", tmp_path / "credentials.json")
    with serving(world.app) as url:
        launcher.use(url, token("member"))
        script = f'gpus=$({launcher.program} alloc -ncgpus=1 -while=$$) && eval "$gpus" && echo $GSAAS_LEASE; read line'
        with subprocess.Popen(
            ["sh", "-c", script],
            env={**os.environ, "GSAAS_CREDENTIALS": str(launcher.credentials)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            yield process
            process.kill()
        until(lambda: all(lease.status == "RELEASED" for lease in leases(world)))


def status(world: World) -> str:
    (lease,) = leases(world)
    return lease.status


def test_cgpus_that_are_kept_while_a_shell_lives_are_released_when_it_is_killed(
    world: World, shell: subprocess.Popen[str]
):
    lease_id = shell.stdout.readline().strip()  # the process in the background holds no pipe
    (lease,) = leases(world)
    assert (lease.id, lease.status, lease.keepalive) == (lease_id, "ACTIVE", 60)
    shell.send_signal(signal.SIGKILL)
    until(lambda: status(world) == "RELEASED")


def test_a_process_that_is_not_there_is_refused_before_anything_is_claimed(
    world: World, desk: Desk
):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    exit_status, _, err = desk.type("alloc", "-ncgpus=1", f"-while={ended.pid}")
    assert (exit_status, leases(world)) == (1, [])
    assert f"process {ended.pid} cannot be watched" in err
