# SPDX-License-Identifier: Apache-2.0
"""`gsaas.wsgi.api:application` under a real WSGI server with several workers, as operators run it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gsaas.db import migration
from gsaas.db.database import Database
from tests.api.world import fill, token, write_tokens

pytestmark = pytest.mark.slow

PATIENCE = 120
"""Seconds for a server to start or to stop on a busy machine."""
SETTINGS = """
[DEFAULT]
transport_url = in-process://
[api]
auth_strategy = {strategy}
token_file = {folder}/tokens.json
[database]
connection = {connection}
[engine]
cloud = nova
[remoting]
driver = simulated
[oslo_middleware]
enable_proxy_headers_parsing = true
[cors]
allowed_origin = https://dashboard.example.org
[service_user]
auth_type = none
endpoint = http://127.0.0.1:1
"""


class Deployed:
    """An API under gunicorn, loaded once and then forked into its workers."""

    def __init__(
        self,
        folder: Path,
        strategy: str = "token-file",
        connection: str | None = None,
        environment: Mapping[str, str] | None = None,
        more_settings: str = "",
        workers: int = 2,
    ) -> None:
        write_tokens(folder / "tokens.json")
        conf = folder / "gsaas.conf"
        settings = SETTINGS.format(
            folder=folder, strategy=strategy, connection=connection or sqlite_in(folder)
        )
        conf.write_text(settings + more_settings, encoding="utf-8")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(Path(sys.executable).with_name("gunicorn"), "--preload"),
                    *(f"--workers={workers}", "--threads=4", f"--bind=127.0.0.1:{self.port}"),
                    "gsaas.wsgi.api:application",
                ],
                env=os.environ | {"GSAAS_CONFIG_FILES": str(conf)} | (environment or {}),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def ask(
        self, method: str, path: str, caller: str | None = None, body: Any = None, **headers: str
    ):
        """Return the status, headers and body of a response, as soon as the server listens."""
        if body is not None:
            body, headers["Content-Type"] = json.dumps(body), "application/json"
        if caller is not None:
            headers["X-Auth-Token"] = token(caller)
        deadline = time.monotonic() + PATIENCE
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.headers, answer.read()
            except ConnectionRefusedError:
                assert time.monotonic() < deadline, self.log.read_text()
                assert self.process.poll() is None, self.log.read_text()
                time.sleep(0.05)
            finally:
                connection.close()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)


def sqlite_in(folder: Path) -> str:
    return f"sqlite:///{folder}/gsaas.db"


def make_database(folder: Path) -> None:
    migration.upgrade(sqlite_in(folder))
    database = Database.open(sqlite_in(folder))
    fill(database)
    database.close()


@pytest.fixture(scope="module")
def deployed(tmp_path_factory):
    """An API that tests only ask: it takes seconds to start."""
    folder = tmp_path_factory.mktemp("deployed")
    make_database(folder)
    made = Deployed(folder)
    yield made
    made.stop()


def test_workers_that_were_forked_from_one_process_all_answer(deployed):
    deployed.ask("GET", "/healthcheck")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: deployed.ask("GET", "/v1/gpus", "admin")[0], range(40)))
    assert answers == [200] * 40


def test_each_worker_returns_the_counters_of_all_workers(tmp_path):
    make_database(tmp_path)
    shared = tmp_path / "metrics"
    shared.mkdir()
    deployed = Deployed(tmp_path, environment={"PROMETHEUS_MULTIPROC_DIR": str(shared)})
    try:
        deployed.ask("GET", "/healthcheck")
        too_much = {"lease": {"cgpus": {"count": 9}, "server": {}}}
        launch = partial(deployed.ask, "POST", "/v1/leases", "member", too_much)
        refusals, deadline = 0, time.monotonic() + PATIENCE
        with ThreadPoolExecutor(8) as pool:
            # Until both have counted something.
            while not refusals or len(list(shared.glob("counter_*.db"))) < 2:
                assert time.monotonic() < deadline
                asked = [pool.submit(launch) for _ in range(20)]
                assert {answer.result()[0] for answer in asked} == {409}
                refusals += len(asked)
            told = [pool.submit(deployed.ask, "GET", "/metrics") for _ in range(20)]
            assert {_impossible(answer.result()[2].decode()) for answer in told} == {refusals}
    finally:
        deployed.stop()


def _impossible(text: str) -> float:
    (counted,) = (
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels == {"code": "gsaas.capacity.impossible"}
    )
    return counted


def test_without_a_database_the_server_starts_and_reports_it(tmp_path):
    deployed = Deployed(tmp_path, connection="mysql+pymysql://gsaas@127.0.0.1:1/gsaas", workers=1)
    try:
        status, headers, body = deployed.ask("GET", "/v1/gpus", "reader")
        (error,) = json.loads(body)["errors"]
        assert (status, error["code"]) == (503, "gsaas.database.unreachable")
        assert headers["X-OpenStack-Request-ID"] == error["request_id"]
    finally:
        deployed.stop()


def test_a_dashboard_of_the_cloud_may_ask_from_a_browser(deployed):
    origin = {"Origin": "https://dashboard.example.org"}
    asks = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "X-Auth-Token",
    }
    status, headers, _ = deployed.ask("OPTIONS", "/v1/leases", **origin, **asks)
    assert status == 200
    assert headers["Access-Control-Allow-Origin"] == origin["Origin"]
    status, headers, _ = deployed.ask("GET", "/v1/leases", "reader", **origin)
    assert (status, headers["Access-Control-Allow-Origin"]) == (200, origin["Origin"])
    _, headers, _ = deployed.ask("GET", "/v1/leases", "reader", Origin="https://evil.example.org")
    assert "Access-Control-Allow-Origin" not in headers


def test_links_begin_with_the_path_under_which_a_proxy_serves_the_api_and_name_no_host(deployed):
    _, _, body = deployed.ask(
        "GET", "/v1", **{"X-Forwarded-Prefix": "/gpu", "X-Forwarded-Host": "evil.example.org"}
    )
    assert json.loads(body)["version"]["links"][0]["href"] == "/gpu/v1/"


FILTER_OF_ANOTHER_PACKAGE = """
def factory(global_conf, greeting):
    def filter(app):
        def filtered(environ, start_response):
            def start(status, headers, *more):
                return start_response(status, [*headers, ("X-Greeting", greeting)], *more)

            return app(environ, start)

        return filtered

    return filter
"""
PASTE = """
[pipeline:main]
pipeline = browsers greeting api

[filter:browsers]
paste.filter_factory = oslo_middleware.cors:filter_factory
allowed_origin = https://another.example.org

[filter:greeting]
paste.filter_factory = another_package:factory
greeting = hello

[app:api]
paste.app_factory = gsaas.wsgi.filters:api
"""


def test_an_operators_filters_are_around_the_api(tmp_path):
    make_database(tmp_path)
    (tmp_path / "another_package.py").write_text(FILTER_OF_ANOTHER_PACKAGE, encoding="utf-8")
    (tmp_path / "filters.ini").write_text(PASTE, encoding="utf-8")
    deployed = Deployed(
        tmp_path,
        environment={"PYTHONPATH": str(tmp_path)},
        more_settings=f"[api]\npaste_config = {tmp_path}/filters.ini\n",
        workers=1,
    )
    try:
        origin = "https://another.example.org"
        status, headers, _ = deployed.ask("GET", "/v1/gpus", "admin", Origin=origin)
        assert (status, headers["X-Greeting"]) == (200, "hello")
        assert headers["Access-Control-Allow-Origin"] == origin
        assert "OpenStack-API-Version" in headers["Access-Control-Expose-Headers"]
        # The default filters, which [cors] configures, are not there.
        _, headers, _ = deployed.ask("GET", "/v1/gpus", Origin="https://dashboard.example.org")
        assert "Access-Control-Allow-Origin" not in headers
    finally:
        deployed.stop()


def test_a_filter_that_does_not_exist_ends_the_server_with_a_reason(tmp_path):
    (tmp_path / "filters.ini").write_text(PASTE, encoding="utf-8")
    deployed = Deployed(tmp_path, more_settings=f"[api]\npaste_config = {tmp_path}/filters.ini\n")
    assert deployed.process.wait(PATIENCE) != 0
    said = deployed.log.read_text()
    assert f"[api]paste_config: {tmp_path}/filters.ini cannot be used: " in said
    assert "another_package" in said


def test_a_configuration_that_cannot_be_used_ends_the_server_with_a_reason(tmp_path):
    deployed = Deployed(tmp_path, strategy="keystone")
    assert deployed.process.wait(PATIENCE) != 0
    assert "[keystone_authtoken] does not say how to reach Keystone" in deployed.log.read_text()
