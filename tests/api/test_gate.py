# SPDX-License-Identifier: Apache-2.0
"""Clients of leases with real addresses present their grant by themselves, and stop if it is refused."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import sqlalchemy

from gsaas.db import leases, models
from gsaas.gpu_host.gate import Gate
from gsaas.grants import keyring, redemption
from gsaas.rpc.engine import RedemptionResult
from tests.api.server import serving
from tests.api.world import World, token
from tests.support.launcher import Launcher

KEY = "test:" + "dGVz" * 11


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def world(listener: socket.socket, tmp_path) -> Iterator[World]:
    """A world whose GPU hosts all have the loopback address."""
    port = listener.getsockname()[1]
    world = World.build(tmp_path, settings=f"[grants]\nkey = {KEY}\ngate_port = {port}\n")
    with world.database.write() as session:
        session.execute(sqlalchemy.update(models.HostRow).values(gpu_address="127.0.0.1"))
    yield world
    world.database.close()


@pytest.fixture
def gate(world: World, listener: socket.socket) -> Iterator[Gate]:
    def redeem(key: str, address: str, lease_id: str) -> RedemptionResult:
        shown = redemption.PresentedGrant(key, address, lease_id)
        try:
            redemption.redeem(world.database, keyring.from_conf(world.conf), shown)
        except redemption.exceptions.GrantRefused as refusal:
            return RedemptionResult(refusal.code, str(refusal))
        return RedemptionResult(None, None)

    gate = Gate(listener, redeem)
    gate.start()
    yield gate
    gate.stop()


def events_of_leases(world: World) -> list[list[str]]:
    with world.database.read() as session:
        found = session.scalars(sqlalchemy.select(models.LeaseRow.id)).all()
        return [
            [event.event for event in leases.events(session.connection(), lease)] for lease in found
        ]


def test_alloc_shows_it_and_prints_an_environment_without_one(desk, gate):
    answer = desk.read("alloc", "-ncgpus=1")

    assert "GSAAS_GRANT" not in answer["environment"]
    assert events_of_leases(desk.world) == [["claim", "activate", "redeem-grant"]]


def test_alloc_for_another_host_leaves_it_to_redeem_there(desk, gate, monkeypatch):
    answer = desk.read("alloc", "-ncgpus=1", "-on=node7")
    assert events_of_leases(desk.world) == [["claim", "activate"]]

    for name, value in answer["environment"].items():
        monkeypatch.setenv(name, value)
    status, out, err = desk.type("redeem")

    assert (status, err) == (0, "")
    assert answer["lease"]["id"] in out
    status, _, err = desk.type("redeem")
    assert status == 1
    assert "was redeemed already" in err


def test_redeem_needs_no_credentials_but_an_environment(desk, monkeypatch):
    monkeypatch.setenv("GSAAS_CREDENTIALS", "/nowhere")
    for name in ("GSAAS_LEASE", "GSAAS_GRANT", "GSAAS_GATE"):
        monkeypatch.delenv(name, raising=False)

    status, _, err = desk.type("redeem")

    assert status == 2
    assert "GSAAS_GRANT" in err


def test_without_a_gate_that_admits_it_alloc_releases_its_lease(desk, listener):
    listener.close()

    status, out, err = desk.type("alloc", "-ncgpus=1")

    assert status != 0
    assert out == ""
    assert "cannot be reached" in err
    assert events_of_leases(desk.world) == [["claim", "activate", "release", "finish"]]


@pytest.mark.slow
@pytest.mark.parametrize("program", ["gsaas", "gsaas-cli"])
def test_run_shows_it_before_the_command_begins(world, gate, programs, program, tmp_path):
    launcher = Launcher(programs / program, tmp_path / "credentials.json")
    with serving(world.app) as url:
        launcher.use(url, token("member"))
        ran = launcher.run("-ncgpus=1", "--", "sh", "-c", 'echo "$RCUDA_DEVICE_COUNT $GSAAS_GRANT"')
        world.engine.settle()

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "1 \n", "")
    assert events_of_leases(world) == [["claim", "activate", "redeem-grant", "release", "finish"]]
