# SPDX-License-Identifier: Apache-2.0
"""How long launches take is counted once each, and served by the engine."""

from __future__ import annotations

import shutil
import socket
import urllib.request
from contextlib import ExitStack

import pytest
from prometheus_client.parser import text_string_to_metric_families

import gsaas.conf
from gsaas.cli import engine as engine_process
from gsaas.metrics import counted, exposition
from gsaas.objects import timings
from gsaas.service import Unstartable


@pytest.fixture
def scrape():
    """Asks what an engine in this process serves: sample name and phase -> value."""
    port, stop = exposition.serve("127.0.0.1:0")

    def scrape() -> dict[tuple[str, str], float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        return {
            (sample.name.removeprefix("gsaas_launch_phase_seconds_"), sample.labels["phase"]): (
                sample.value
            )
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if family.name == "gsaas_launch_phase_seconds" and not sample.name.endswith("_bucket")
        }

    yield scrape
    stop()


def test_each_phase_of_a_launch_is_one_observation(scrape):
    before = scrape()
    counted.launched({"check": 0.25, "creation": 1.5})
    counted.launched({"check": 0.25})
    after = scrape()
    grown = {key: after[key] - before.get(key, 0) for key in after}
    assert {key: by for key, by in grown.items() if by} == {
        ("count", "check"): 2,
        ("sum", "check"): 0.5,
        ("count", "creation"): 1,
        ("sum", "creation"): 1.5,
    }


def test_an_engine_that_brings_a_lease_to_active_notes_what_it_took(scrape, world):
    before = scrape()
    lease_id = world.launch()
    while world.lease(lease_id).status != "ACTIVE":
        world.reconcile(lease_id)
    took = world.lease(lease_id).timings
    after = scrape()
    grown = {phase: after["sum", phase] - before.get(("sum", phase), 0) for phase in took}
    assert grown == pytest.approx(took)
    world.reconcile(lease_id)
    assert scrape() == after


def test_every_phase_there_is_can_be_counted(scrape):
    counted.launched(dict.fromkeys(timings.PHASES, 1.0))
    assert {phase for _, phase in scrape()} == set(timings.PHASES)


SETTINGS = """
[DEFAULT]
transport_url = in-process://
[database]
connection = sqlite:///{database}
[engine]
cloud = nova
metrics_listen = 127.0.0.1:{port}
[remoting]
driver = simulated
[service_user]
auth_type = none
endpoint = http://127.0.0.1:1
"""


@pytest.fixture
def start_engine(database_file, tmp_path):
    """Starts an engine that serves its metrics at a port, as its process does; stopped at the end."""
    with ExitStack() as parts:

        def start(port: int) -> None:
            settings = tmp_path / "gsaas.conf"
            database = shutil.copy(database_file, tmp_path)
            settings.write_text(SETTINGS.format(database=database, port=port), encoding="utf-8")
            engine_process.start(gsaas.conf.load(files=[str(settings)]), parts)

        yield start


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.mark.slow
def test_an_engine_serves_its_metrics_where_it_is_told_to(start_engine):
    port = free_port()
    start_engine(port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert "# TYPE gsaas_launch_phase_seconds histogram" in answer.read().decode()


@pytest.mark.slow
def test_an_engine_whose_address_is_taken_does_not_start_and_says_so(start_engine):
    port, stop = exposition.serve("127.0.0.1:0")
    try:
        with pytest.raises(
            Unstartable, match=rf"metrics cannot be served at 127\.0\.0\.1:{port}: "
        ):
            start_engine(port)
    finally:
        stop()
