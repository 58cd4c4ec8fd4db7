# SPDX-License-Identifier: Apache-2.0
"""A cached token whose URL is not that of the API any more: the API is found again, and nothing is done twice."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gsaasclient.api import Client
from gsaasclient.credentials import KeystoneCredentials
from gsaasclient.errors import ApiError
from tests.api.cached_tokens import ONE, Programs, rewrite, succeeds
from tests.api.cached_tokens import both as both
from tests.api.cached_tokens import files as files
from tests.api.test_client_cloud import CloudUser
from tests.api.test_client_cloud import certificate as certificate
from tests.api.test_client_cloud import user as user

pytestmark = pytest.mark.slow


def test_an_api_that_has_moved_is_found_again(user: CloudUser, both: Programs, files):
    user.read("list")
    user.keystone.endpoints[0]["url"], here = "http://127.0.0.1:1", user.url
    for file in files():
        file.unlink()
    user.refused("list")
    user.keystone.endpoints[0]["url"] = here
    user.read("list")
    (file,) = files()
    rewrite(file, url="http://127.0.0.1:1")
    succeeds(both.launcher)
    rewrite(file, url="http://127.0.0.1:1")
    assert user.read("list") == []


class Stranger:
    """What answers where the API was: every request with the same status and body. *methods* are those of requests."""

    def __init__(self) -> None:
        self.methods: list[str] = []
        self.status = 404
        self.body = b"<html>no such page</html>"
        self.type = "text/html"
        stranger = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline()
                self.close_connection = True
                if self.raw_requestline and self.parse_request():
                    self.rfile.read(int(self.headers.get("Content-Length") or 0))
                    stranger.methods.append(self.command)
                    self.send_response(stranger.status)
                    self.send_header("Content-Type", stranger.type)
                    self.send_header("Content-Length", str(len(stranger.body)))
                    self.end_headers()
                    self.wfile.write(stranger.body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def has(self, file: Path) -> None:
        """Have the cached token be for this address."""
        rewrite(file, url=self.url)


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    found = Stranger()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.mark.parametrize("status", [404, 502, 503, 504])
def test_an_api_whose_former_address_another_program_has_is_found_again(
    user: CloudUser, stranger: Stranger, files, status: int
):
    user.read("list")
    (file,) = files()
    stranger.has(file)
    stranger.status = status
    assert user.read("list") == []
    assert stranger.methods == ["GET"]
    assert json.loads(file.read_text())["url"] == user.url


def test_another_service_of_the_cloud_at_the_former_address_is_not_the_api(
    user: CloudUser, stranger: Stranger, files
):
    user.read("list")
    stranger.has(files()[0])
    stranger.type, stranger.body = "application/json", b'{"errors": [{"status": 404}]}'
    assert user.read("list") == []


def test_a_launch_with_a_key_is_sent_again_to_where_the_api_is(
    user: CloudUser, stranger: Stranger, files
):
    user.read("list")
    stranger.has(files()[0])
    stranger.status = 502
    Client(KeystoneCredentials(os.environ)).launch({"cgpus": {"count": 1}})
    assert stranger.methods == ["POST"]
    assert len(user.read("list")) == 1


@pytest.mark.parametrize("status", [404, 502])
def test_what_may_have_taken_effect_is_not_sent_again_but_the_next_request_finds_the_api(
    user: CloudUser, stranger: Stranger, files, status: int
):
    user.read("list")
    stranger.has(files()[0])
    stranger.status = status
    client = Client(KeystoneCredentials(os.environ))
    with pytest.raises(ApiError, match=f"HTTP status {status}"):
        client.request("DELETE", "/v1/leases/11111111-2222-3333-4444-555555555555")
    assert (stranger.methods, files()) == (["DELETE"], [])
    assert client.request("GET", "/v1/leases")["leases"] == []
    assert stranger.methods == ["DELETE"]


def test_c_leaves_a_launch_to_python_if_what_answers_has_no_leases(
    user: CloudUser, both: Programs, stranger: Stranger, files
):
    user.read("list")
    stranger.has(files()[0])
    succeeds(both.launcher)
    assert (both.calls(), stranger.methods) == (["run"], ["POST"])
    succeeds(both.launcher)
    assert both.calls() == []


def test_c_launches_once_if_a_proxy_answers_and_the_next_launch_finds_the_api(
    user: CloudUser, both: Programs, stranger: Stranger, files
):
    user.read("list")
    stranger.has(files()[0])
    stranger.status = 502
    ran = both.launcher.run(*ONE, "true")
    assert (ran.returncode, both.calls(), files()) == (125, [], [])
    assert "HTTP status 502" in ran.stderr
    succeeds(both.launcher)
    assert stranger.methods == ["POST"]


def test_c_keeps_the_token_if_the_error_is_of_the_api_itself(
    user: CloudUser, both: Programs, stranger: Stranger, files
):
    user.read("list")
    (file,) = files()
    stranger.has(file)
    error = {"code": "gsaas.database.unreachable", "status": 503, "detail": "try again"}
    stranger.status, stranger.type = 503, "application/json"
    stranger.body = json.dumps({"errors": [error]}).encode()
    ran = both.launcher.run(*ONE, "true")
    assert (ran.returncode, both.calls(), files()) == (125, [], [file])
    assert "try again" in ran.stderr


def test_an_error_of_the_api_itself_leaves_the_token_in_the_cache(
    user: CloudUser, stranger: Stranger, files
):
    user.read("list")
    (file,) = files()
    client = Client(KeystoneCredentials(os.environ))
    with pytest.raises(ApiError) as refused:
        client.request("GET", "/v1/leases/11111111-2222-3333-4444-555555555555")
    assert refused.value.status == 404
    stranger.has(file)
    error = {"code": "gsaas.database.unreachable", "status": 503, "detail": "try again"}
    stranger.status, stranger.type = 503, "application/json"
    stranger.body = json.dumps({"errors": [error]}).encode()
    assert "try again" in user.refused("list")
    assert user.keystone.sign_ins == ["ada"]
    assert file.exists()
