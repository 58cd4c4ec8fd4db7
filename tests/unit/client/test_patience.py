# SPDX-License-Identifier: Apache-2.0
"""What a command on a terminal says while the API does not answer."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from gsaasclient.cli import main, patience
from gsaasclient.cli.commands import COMMANDS
from gsaasclient.credentials import Credentials
from gsaasclient.transport import Response, Transport
from tests.support.waiting import PATIENCE


class Hanging(Transport):
    """Answers once something was said."""

    def __init__(self, said: threading.Event) -> None:
        self._said = said

    def send(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Response:
        assert self._said.wait(PATIENCE)
        return Response(200, "OK", {}, b"")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> patience.PatientClient:
    monkeypatch.setattr(Credentials, "connect", lambda _self: Transport())
    return patience.PatientClient(Credentials("http://nowhere", "t"))


def test_a_command_says_what_it_waits_for(
    client: patience.PatientClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, said = [], threading.Event()

    def say(text: str) -> None:
        lines.append(text)
        said.set()

    monkeypatch.setattr(patience, "say", say)
    monkeypatch.setattr(patience, "PATIENCE", 0.0)
    monkeypatch.setattr(client, "_transport", Hanging(said))
    client.request("GET", "/v1/leases?name=web")
    assert [line.partition("waiting")[2] for line in lines] == [
        " for the GSaaS API to answer GET /v1/leases (Ctrl-C ends the wait)\n"
    ]


def test_an_answer_in_time_leaves_nothing_that_could_speak(
    client: patience.PatientClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    answered.set()
    monkeypatch.setattr(client, "_transport", Hanging(answered))
    client.request("GET", "/v1/leases")
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    for timer in timers:
        timer.join(PATIENCE)
    assert not any(timer.is_alive() for timer in timers)


def test_nothing_is_said_once_a_command_has_the_terminal(
    client: patience.PatientClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "Timer", None)
    answered = threading.Event()
    answered.set()
    monkeypatch.setattr(client, "_transport", Hanging(answered))
    client.lend_terminal()
    client.request("POST", "/v1/leases/1/keepalive")


@pytest.mark.parametrize(("command", "speaks"), [("list", True), ("run", True), ("top", False)])
def test_nothing_is_said_on_a_terminal_that_a_picture_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, speaks: bool
) -> None:
    """A line would stand in the picture."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    path = tmp_path / "credentials.json"
    path.write_text('{"url": "http://nowhere", "token": "t"}')
    path.chmod(0o600)
    monkeypatch.setenv("GSAAS_CREDENTIALS", str(path))
    client = main._client(COMMANDS[command])
    assert isinstance(client, patience.PatientClient) is speaks
