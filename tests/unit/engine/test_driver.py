"""Leases driven from one end of their life to the other."""

from __future__ import annotations

import base64
import gzip
import os

from gsaas.cloud.base import ServerStatus
from gsaas.db import leases
from gsaas.lifecycle import Status
from tests.unit.engine.world import HOST


def test_a_launch_ends_active_and_a_release_gives_everything_back(world):
    lease_id = world.launch()
    assert world.drive(lease_id) is None
    world.check_active(lease_id)
    world.release(lease_id)
    assert world.drive(lease_id) is None
    world.check_nothing_is_left(lease_id, Status.RELEASED)
    assert world.story(lease_id) == ["claim", "boot", "activate", "release", "finish"]


def test_the_server_is_told_of_its_cgpus_in_its_user_data(world):
    lease_id = world.launch()
    world.drive(lease_id)
    data = base64.b64decode(world.cloud.user_data[lease_id])
    text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    assert b"169.254.71.1" in text


def test_a_release_before_the_first_step_makes_no_server(world):
    lease_id = world.launch()
    world.release(lease_id)
    world.drive(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)
    assert world.cloud.user_data == {}


def test_a_binding_waits_for_its_tap_and_the_lease_for_the_binding(world):
    world.endpoint.tap_exists = False
    lease_id = world.launch()
    assert world.drive(lease_id) == world.conf.engine.poll_interval
    assert world.lease(lease_id).status == Status.BOOTING
    world.endpoint.tap_exists = True
    world.drive(lease_id)
    world.check_active(lease_id)


def test_the_endpoint_is_told_while_the_server_still_boots(world):
    world.cloud.boots = ServerStatus.BUILD
    lease_id = world.launch()
    assert world.drive(lease_id) == world.conf.engine.poll_interval
    assert world.lease(lease_id).status == Status.BOOTING
    assert [binding.lease_id for binding in world.endpoint.bindings] == [lease_id]


def test_a_server_that_the_cloud_refuses_ends_in_error_with_its_reason_and_holds_nothing(world):
    world.cloud.refusal = "there is no image x"
    lease_id = world.launch()
    world.drive(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)
    lease = world.lease(lease_id)
    assert (lease.fault_step, lease.fault_message) == ("create-server", "there is no image x")


def test_user_data_that_is_too_large_ends_in_error_with_its_size_and_holds_nothing(world):
    noise = b"#!/bin/sh\n# " + os.urandom(60_000).hex().encode()
    lease_id = world.launch(user_data=base64.b64encode(noise).decode())
    world.drive(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)
    assert "65535 is the most" in world.lease(lease_id).fault_message


def test_a_server_that_fails_to_boot_ends_in_error_in_the_clouds_own_words(world):
    world.cloud.boots = ServerStatus.ERROR
    lease_id = world.launch()
    world.drive(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)
    assert world.lease(lease_id).fault_step == "boot-server"


def test_a_lease_in_error_can_be_released(world):
    world.cloud.refusal = "no"
    lease_id = world.launch()
    world.drive(lease_id)
    world.release(lease_id)
    world.drive(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_a_boot_that_takes_too_long_ends_in_error_and_holds_nothing(world):
    world.cloud.boots = ServerStatus.BUILD
    lease_id = world.launch()
    world.drive(lease_id)
    world.conf.set_override("boot_timeout", 5, "engine")
    created = world.lease(lease_id).created_at
    with world.database.write() as session:
        leases.update(session, lease_id, created_at=created.replace(year=created.year - 1))
    world.drive(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)
    assert "within 5 s" in world.lease(lease_id).fault_message


def test_a_server_deleted_behind_our_back_releases_its_lease(world):
    lease_id = world.launch()
    world.drive(lease_id)
    world.cloud.servers.clear()
    world.drive(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_an_endpoint_that_does_not_answer_keeps_the_claims_until_it_does(world):
    lease_id = world.launch()
    world.drive(lease_id)
    world.endpoint.answers = False
    world.release(lease_id)
    assert world.drive(lease_id) == world.conf.engine.poll_interval
    lease = world.lease(lease_id)
    assert (lease.status, lease.bound_host) == (Status.RELEASING, HOST)
    assert world.cloud.servers == {}
    assert world.used_mb() == 4096
    world.endpoint.answers = True
    world.drive(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_an_endpoint_that_forgot_an_active_lease_is_told_again(world):
    lease_id = world.launch()
    world.drive(lease_id)
    world.endpoint.held.clear()
    world.drive(lease_id)
    world.check_active(lease_id)
