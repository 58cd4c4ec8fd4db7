# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests where servers differ. tests/hostile/test_servers.py has the servers themselves."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest
from werkzeug.test import EnvironBuilder, run_wsgi_app

from gsaas.wsgi import bodies


class Body(io.BytesIO):
    """What a client sends; `broken` after some of it."""

    def __init__(self, sent: bytes, broken: bool = False) -> None:
        super().__init__(sent)
        self.broken = broken

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if self.broken and not data:
            raise OSError("the client is gone")
        return data


def ask(app, body, **environ):
    """Return the status of the answer of *app*, whose iterable is closed as servers do."""
    given = EnvironBuilder(method="POST").get_environ()
    given |= {"wsgi.input": body, "CONTENT_LENGTH": str(len(body.getvalue()))} | environ
    iterable, status, _ = run_wsgi_app(bodies.readable(app), given)
    assert b"".join(iterable) == b"answer"
    if hasattr(iterable, "close"):
        iterable.close()
    return status


def app(environ, start_response):
    """Answer without reading the body."""
    start_response("401 Unauthorized", [])
    return [b"answer"]


def test_what_nobody_has_read_is_read_after_the_answer():
    body = Body(b"x" * 1_000_000)
    read_at_the_answer = []

    def remember(environ, start_response):
        yield from app(environ, start_response)
        read_at_the_answer.append(body.tell())

    assert ask(remember, body) == "401 Unauthorized"
    assert (read_at_the_answer, body.tell()) == ([0], 1_000_000)


def test_no_more_is_read_than_a_bound(monkeypatch):
    monkeypatch.setattr(bodies, "MOST_UNREAD", 200_000)
    body = Body(b"x" * 1_000_000)
    ask(app, body)
    assert 200_000 <= body.tell() < 300_000


def test_a_client_that_sends_for_ever_is_not_read_for_ever(monkeypatch):
    monkeypatch.setattr(bodies, "SECONDS", -1.0)
    body = Body(b"x" * 1_000_000)
    ask(app, body)
    assert body.tell() == 0


def test_a_body_that_breaks_off_costs_nothing_but_its_client():
    assert ask(app, Body(b"half", broken=True)) == "401 Unauthorized"


def test_a_request_without_a_body_is_passed_on_as_it_is():
    body = Body(b"of the next request")
    for length in ("", "0"):
        ask(app, body, CONTENT_LENGTH=length)
    assert body.tell() == 0


def echo(environ, start_response):
    start_response("200 OK", [])
    read.append(environ["wsgi.input"].read())
    assert environ["wsgi.input_terminated"]
    return [b"answer"]


read: list[bytes] = []


@pytest.mark.parametrize("chunks", [[], [b"one"], [b"one", b"two" * 40_000, b"3"]])
def test_chunks_are_put_together_under_uwsgi(monkeypatch, chunks):
    rest = iter(chunks)
    monkeypatch.setitem(sys.modules, "uwsgi", SimpleNamespace(chunked_read=lambda: next(rest, b"")))
    read.clear()
    uwsgi = {"uwsgi.version": b"2.0", "HTTP_TRANSFER_ENCODING": "Chunked", "CONTENT_LENGTH": ""}
    assert ask(echo, Body(b""), **uwsgi) == "200 OK"
    assert read == [b"".join(chunks)]
