# SPDX-License-Identifier: Apache-2.0
"""What the sessions of different callers share."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from keystoneauth1 import discover, noauth, token_endpoint
from keystoneauth1.session import Session

from gsaas.cloud.nova import clients


class Service(HTTPServer):
    """A service that offers one version; it counts how often it is asked for its versions."""

    requests = 0


class Versions(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self.server.requests += 1
        links = [{"rel": "self", "href": f"http://127.0.0.1:{self.server.server_port}/v2"}]
        body = json.dumps({"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def service() -> Iterator[Service]:
    server = Service(("127.0.0.1", 0), Versions)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_service_is_asked_for_its_versions_once_for_all_callers(service: Service):
    cache: dict[str, object] = {}
    for _ in range(2):
        session = clients._session_like(Session(), noauth.NoAuth(), cache)
        discover.get_discovery(session, f"http://127.0.0.1:{service.server_port}")
    assert service.requests == 1


def test_the_version_of_a_service_is_found_for_a_caller(service: Service):
    """openstacksdk asks for it; releases of keystoneauth differ in whom a pair of tokens asks."""
    own = token_endpoint.Token(f"http://127.0.0.1:{service.server_port}", "of the service")
    pair = clients._WithServiceToken(clients._CallerAuth("of the caller", None, own), own)
    session = clients._session_like(Session(), pair, {})
    assert session.get_api_major_version() == (2, 0)
    assert session.get_endpoint_data().url.endswith("/v2")
    assert session.get_auth_headers()["X-Auth-Token"] == "of the caller"
