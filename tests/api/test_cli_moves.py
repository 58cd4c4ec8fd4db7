# SPDX-License-Identifier: Apache-2.0
"""Moves as `gsaas`, `openstack gpu` and openstacksdk ask for them."""

from __future__ import annotations

import json

import pytest
import yaml
from openstack import exceptions

from gsaas.db import leases
from gsaas.objects.lifecycle import LeaseEvent
from gsaas.objects.move import UNDONE, Stage
from tests.api.desk import Desk, served
from tests.api.openstack_user import user as user
from tests.api.world import World


@pytest.fixture
def desk(tmp_path, capsys, monkeypatch):
    world = World.build(tmp_path)
    with served(world, tmp_path, capsys, monkeypatch) as desk:
        yield desk
    world.database.close()


def launched(desk: Desk) -> str:
    status, out, err = desk.type("-l", "-ncgpus=1", "-name=training", "-f=value", "-c=id")
    assert status == 0, err
    desk.sit("admin")
    return out.strip()


def gpu_of(world: World, lease_id: str) -> tuple[str, str]:
    with world.database.reading() as connection:
        (claim,) = leases.get(connection, lease_id).claims
    return claim.gpu_uuid, claim.gpu.host_name


def test_a_lease_moves_and_the_operator_reads_from_where_to_where(desk):
    lease_id = launched(desk)
    before, host = gpu_of(desk.world, lease_id)
    other = "gpu2" if host == "gpu1" else "gpu1"
    status, out, err = desk.type("move", lease_id, f"-host={other}")
    assert status == 0, err
    after, there = gpu_of(desk.world, lease_id)
    assert there == other
    assert out == (
        f"lease {lease_id} has moved: cGPU 0 from {before} of {host} to {after} of {other}\n"
    )


def test_a_check_says_what_would_be_done(desk):
    lease_id = launched(desk)
    before = gpu_of(desk.world, lease_id)
    status, out, err = desk.type("move", lease_id, "-check", "-to=GPU-0002-3")
    assert status == 0, err
    assert out.startswith(f"lease {lease_id} would move, only if no connection is open then: ")
    assert out.endswith("to GPU-0002-3 of gpu2\n")
    found = desk.read("move", lease_id, "-check", "-to=GPU-0002-3", "-force")
    assert (found["kind"], found["stage"]) == ("cut", None)
    assert gpu_of(desk.world, lease_id) == before


def test_a_lease_that_stays_says_why_and_fails(desk, monkeypatch):
    lease_id = launched(desk)

    def undo(_: str) -> None:
        with desk.world.database.writing() as connection:
            status = leases.update(connection, lease_id, moving=Stage.ENDING).status
            reason = LeaseEvent(UNDONE, status, "2 connections are open")
            leases.record_events(connection, lease_id, [reason])

    monkeypatch.setattr(desk.world.engine, "_finish_move", undo)
    status, out, _ = desk.type("move", lease_id)
    assert (status, out) == (1, f"lease {lease_id} stays where it was: 2 connections are open\n")


def test_without_waiting_it_says_that_it_moves(desk):
    lease_id = launched(desk)
    desk.world.engine.idle = True
    status, out, err = desk.type("move", lease_id, "-nowait", "-index=0")
    assert status == 0, err
    assert out.startswith(f"lease {lease_id} moves, only if no connection is open then: cGPU 0 ")
    assert json.loads(desk.type("move", lease_id, "-nowait", "-f=json")[1])["stage"] == "starting"


def test_a_refusal_has_its_reason(desk):
    lease_id = launched(desk)
    status, _, err = desk.type("move", lease_id, "-index=4")
    assert status == 1
    assert "it has no cGPU 4" in err
    desk.sit("member")
    assert "gsaas:leases:move" in desk.type("move", "training")[2]


@pytest.mark.slow
def test_openstack_moves_it(user):
    made = user.read("gpu", "lease", "create", "training", "--wait", user="admin")
    words = ("gpu", "lease", "move", "training", "--gpu", "GPU-0002-3")
    asked = user.read(*words, "--dry-run", user="admin")
    assert (asked["kind"], asked["stage"]) == ("idle", None)
    assert asked["cgpus"][0]["to"] == {"gpu_uuid": "GPU-0002-3", "gpu_host": "gpu2"}
    status, out, err = user.type(*words, "--force", "-f", "yaml", user="admin")
    assert status == 0, err
    assert yaml.safe_load(out)["lease_id"] == made["id"]
    assert "error" not in err


def test_the_sdk_moves_it(user):
    gpus = user.connect("admin").gpu_scheduling
    lease = gpus.wait_for_lease(gpus.create_lease(cgpus={"count": 1}, server={}))
    assert gpus.move_lease(lease, dry_run=True)["stage"] is None
    assert gpus.move_lease(lease.id, host="gpu2", force=True)["kind"] == "cut"
    with pytest.raises(exceptions.ConflictException, match="cannot be moved"):
        gpus.move_lease(lease, index=9)
