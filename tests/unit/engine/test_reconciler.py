# SPDX-License-Identifier: Apache-2.0
"""Leases reconciled from the beginning of their life to its end."""

from __future__ import annotations

import base64
import datetime
import gzip
import os
import threading
import uuid
from contextlib import contextmanager
from dataclasses import replace

import pytest
from oslo_db import exception as db_exception

from gsaas import exceptions
from gsaas.cloud.base import Server, ServerStatus
from gsaas.context import RequestContext
from gsaas.db import endpoints, hosts, leases, models
from gsaas.db.database import Database, OvertakenError
from gsaas.engine import processes
from gsaas.objects import timings
from gsaas.objects.lifecycle import Event, Status
from tests.unit.engine.world import HOST


def test_a_launch_ends_active_and_a_release_gives_everything_back(world):
    lease_id = world.launch()
    assert world.reconcile(lease_id) is None
    world.check_active(lease_id)
    world.release(lease_id)
    assert world.reconcile(lease_id) is None
    world.check_nothing_is_left(lease_id, Status.RELEASED)
    assert world.events(lease_id) == ["claim", "boot", "activate", "release", "finish"]


@pytest.mark.slow
@pytest.mark.parametrize("error", [db_exception.DBDeadlock, OvertakenError])
@pytest.mark.parametrize("has_server", [True, False])
def test_no_step_fails_because_its_transaction_lost_a_race(
    world, monkeypatch, error: type[Exception], has_server: bool
):
    """Every transaction does, the first time: a Galera node ends the later of two in this way."""
    writing, lost = Database.writing, [0]

    @contextmanager
    def lose(database):
        with writing(database) as connection:
            yield connection
            lost[0] += 1
            if lost[0] % 2:
                raise error

    def reconcile():
        with monkeypatch.context() as patch:
            patch.setattr(Database, "writing", lose)
            world.reconcile(lease_id)

    lease_id = world.launch() if has_server else world.alloc()
    reconcile()
    assert world.lease(lease_id).status == Status.ACTIVE
    world.release(lease_id)
    reconcile()
    world.check_nothing_is_left(lease_id, Status.RELEASED)
    assert lost[0] > 8


def test_the_server_is_told_of_its_cgpus_in_its_user_data(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    data = base64.b64decode(world.cloud.user_data[lease_id])
    text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    assert b"169.254.71.1" in text


def test_a_release_before_the_first_step_makes_no_server(world):
    lease_id = world.launch()
    world.release(lease_id)
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)
    assert world.cloud.user_data == {}


def test_a_binding_waits_for_its_tap_and_the_lease_for_the_binding(world):
    world.endpoint.tap_exists = False
    lease_id = world.launch()
    assert world.reconcile(lease_id) == world.conf.engine.poll_interval
    assert world.lease(lease_id).status == Status.BOOTING
    world.endpoint.tap_exists = True
    world.reconcile(lease_id)
    world.check_active(lease_id)


def test_the_endpoint_is_told_while_the_server_still_boots(world):
    world.cloud.initial_status = ServerStatus.BUILD
    lease_id = world.launch()
    assert world.reconcile(lease_id) == world.conf.engine.poll_interval
    assert world.lease(lease_id).status == Status.BOOTING
    assert [binding.lease_id for binding in world.endpoint.bindings] == [lease_id]


def test_a_server_that_the_cloud_refuses_ends_in_error_with_its_reason_and_has_nothing(world):
    world.cloud.refusal = "there is no image x"
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)
    lease = world.lease(lease_id)
    assert (lease.fault_step, lease.fault_message) == ("create-server", "there is no image x")


def test_user_data_that_is_too_large_ends_in_error_with_its_size_and_has_nothing(world):
    noise = b"#!/bin/sh\n# " + os.urandom(60_000).hex().encode()
    lease_id = world.launch(user_data=base64.b64encode(noise).decode())
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)
    assert "Nova allows at most 65535" in world.lease(lease_id).fault_message


def test_a_server_that_fails_to_boot_ends_in_error_in_the_clouds_own_words(world):
    world.cloud.initial_status = ServerStatus.ERROR
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)
    assert world.lease(lease_id).fault_step == "boot-server"


def test_a_lease_in_error_can_be_released(world):
    world.cloud.refusal = "no"
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.release(lease_id)
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_a_boot_that_takes_too_long_ends_in_error_and_has_nothing(world):
    world.cloud.initial_status = ServerStatus.BUILD
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.conf.set_override("boot_timeout", 5, "engine")
    world.age(lease_id, 6)
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)
    assert "within 5 s" in world.lease(lease_id).fault_message


def test_a_server_deleted_behind_our_back_releases_its_lease(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.cloud.servers.clear()
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_an_endpoint_that_does_not_answer_keeps_the_claims_until_it_does(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.endpoint.answers = False
    world.release(lease_id)
    assert world.reconcile(lease_id) == world.conf.engine.poll_interval
    lease = world.lease(lease_id)
    assert (lease.status, lease.bound_host) == (Status.RELEASING, HOST)
    assert world.cloud.servers == {}
    assert world.used_mb() == 4096
    world.endpoint.answers = True
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_an_active_lease_is_looked_at_again_if_the_cloud_does_not_answer(world):
    """That its server was deleted, the cloud tells once."""
    lease_id = world.launch()
    world.reconcile(lease_id)
    find = world.cloud.find
    world.cloud.servers.clear()

    def unavailable(_owner):
        raise exceptions.CloudUnavailable(reason="Nova does not answer")

    world.cloud.find = unavailable
    assert world.reconcile(lease_id) == world.conf.engine.poll_interval
    world.cloud.find = find
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_an_engine_that_stood_still_binds_no_lease_that_another_one_has_released(world):
    """Its order for the endpoint was decided while it owned the lease, and arrives long after."""
    lease_id = world.launch()

    def take_over() -> None:
        world.endpoint.before_apply = lambda: None
        with world.database.write() as session:
            session.get(models.LeaseRow, lease_id).driven_until = datetime.datetime(2026, 1, 1)
        world.release(lease_id)
        world.engine("another").reconcile(lease_id)
        world.check_nothing_is_left(lease_id, Status.RELEASED)

    world.endpoint.before_apply = take_over
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)
    assert [call for call, *_ in world.endpoint.calls] == ["remove"]


def test_an_endpoint_that_forgot_an_active_lease_is_told_again(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.endpoint.bindings_by_host.clear()
    world.reconcile(lease_id)
    world.check_active(lease_id)


CALLER = RequestContext(user_id="u", project_id="p", auth_token="secret", overwrite=False)


@pytest.fixture
def world_with_tokens(world):
    """A cloud that makes servers only with their owners' tokens."""
    world.cloud.needs_caller = True
    return world


def test_an_engine_that_was_told_of_the_caller_makes_the_server_and_forgets_the_caller(
    world_with_tokens,
):
    lease_id, engine = world_with_tokens.launch(), world_with_tokens.engine()
    engine.callers.keep(lease_id, CALLER)
    engine.reconcile(lease_id)
    world_with_tokens.check_active(lease_id)
    assert engine.callers.get(lease_id, "u", "p") is None


@pytest.mark.parametrize("what", ["leases.get", "hosts.monitor_reports"])
def test_the_caller_is_not_forgotten_because_the_database_failed(
    world_with_tokens, monkeypatch, what
):
    lease_id = world_with_tokens.launch()
    engine = world_with_tokens.engine()
    engine.callers.keep(lease_id, CALLER)

    def fail(*_: object) -> None:
        raise db_exception.DBConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(f"gsaas.db.{what}", fail)
        with pytest.raises(db_exception.DBConnectionError):
            engine.reconcile(lease_id)
    engine.reconcile(lease_id)
    world_with_tokens.check_active(lease_id)


class Requested(BaseException):
    """An engine is killed when it has requested a server."""


@pytest.fixture
def requested(world_with_tokens, monkeypatch):
    """A lease whose engine was killed when it had requested the server, which does not exist yet; and the next engine.

    That runs on the same machine, and has a token from a later request of the caller.
    """
    lease_id = world_with_tokens.launch()
    former, latter = world_with_tokens.engine("former"), world_with_tokens.engine("latter")
    monkeypatch.setattr(processes, "is_gone", lambda name: name == "former")

    def create(*_: object) -> Server:
        raise Requested

    with monkeypatch.context() as patch:
        patch.setattr(world_with_tokens.cloud, "create", create)
        former.callers.keep(lease_id, CALLER)
        with pytest.raises(Requested):
            former.reconcile(lease_id)
    latter.callers.keep(lease_id, CALLER)
    return lease_id, latter


def test_no_second_server_is_requested_while_the_cloud_may_make_the_first(
    world_with_tokens, requested
):
    lease_id, latter = requested
    assert latter.reconcile(lease_id) == world_with_tokens.conf.engine.poll_interval
    assert world_with_tokens.cloud.servers == {}
    with world_with_tokens.database.write() as session:
        lease = session.get_one(models.LeaseRow, lease_id)
        lease.driven_until = lease.updated_at  # as if its time was over
    latter.reconcile(lease_id)
    world_with_tokens.check_active(lease_id)


def test_the_server_that_a_killed_engine_has_requested_is_taken_as_soon_as_it_is_there(
    world_with_tokens, requested
):
    lease_id, latter = requested
    made = Server(str(uuid.uuid4()), ServerStatus.BUILD, None, None)
    world_with_tokens.cloud.servers[lease_id] = made
    latter.reconcile(lease_id)
    world_with_tokens.check_active(lease_id)
    assert world_with_tokens.lease(lease_id).server_id == made.id


def test_a_server_that_was_made_when_another_engine_had_made_one_is_deleted(
    world_with_tokens, monkeypatch
):
    """This engine stood still, before the cloud answered, until its ownership had run out."""
    lease_id, engine = world_with_tokens.launch(), world_with_tokens.engine()
    engine.callers.keep(lease_id, CALLER)

    def create(*_: object) -> Server:
        with world_with_tokens.database.write() as session:
            leases.transition(session.connection(), lease_id, Event.BOOT, server_id="first")
        return Server("second", ServerStatus.BUILD, None, None)

    monkeypatch.setattr(world_with_tokens.cloud, "create", create)
    monkeypatch.setattr(
        world_with_tokens.cloud, "find", lambda _: Server("first", ServerStatus.BUILD, None, None)
    )
    engine.reconcile(lease_id)
    assert world_with_tokens.cloud.deleted == ["second"]
    assert world_with_tokens.lease(lease_id).server_id == "first"


def test_only_the_token_of_its_own_caller_makes_the_server_of_a_lease(world_with_tokens):
    """For example that of an administrator, whose request concerned the lease during its launch."""
    lease_id, engine = world_with_tokens.launch(), world_with_tokens.engine()
    other = RequestContext(user_id="admin", project_id="p", auth_token="other", overwrite=False)
    engine.callers.keep(lease_id, other)
    assert engine.reconcile(lease_id) == world_with_tokens.conf.engine.poll_interval
    assert world_with_tokens.cloud.servers == {}


def test_the_callers_token_is_never_written_down(world_with_tokens):
    lease_id, engine = world_with_tokens.launch(), world_with_tokens.engine()
    engine.callers.keep(lease_id, CALLER)
    engine.reconcile(lease_id)
    with world_with_tokens.database.engine.connect() as connection:
        dump = "\n".join(connection.connection.iterdump())
    assert lease_id in dump
    assert CALLER.auth_token not in dump


def test_another_engine_leaves_the_launch_alone_until_the_grace_is_over(world_with_tokens):
    lease_id = world_with_tokens.launch()
    assert world_with_tokens.reconcile(lease_id) == world_with_tokens.conf.engine.poll_interval
    assert world_with_tokens.lease(lease_id).status == Status.CLAIMED
    world_with_tokens.age(lease_id, world_with_tokens.conf.engine.caller_grace + 1)
    world_with_tokens.reconcile(lease_id)
    world_with_tokens.check_nothing_is_left(lease_id, Status.ERROR)
    assert "launch again" in world_with_tokens.lease(lease_id).fault_message


def test_an_engine_that_works_on_a_launch_is_left_alone_even_after_the_grace(world_with_tokens):
    """Its call to the cloud takes long; another engine must not say that the launch is lost."""
    lease_id, slow = world_with_tokens.launch(), world_with_tokens.engine("slow")
    slow.callers.keep(lease_id, CALLER)
    asked, go_on = threading.Event(), threading.Event()
    create = world_with_tokens.cloud.create

    def create_slowly(*arguments):
        asked.set()
        assert go_on.wait(60)
        return create(*arguments)

    world_with_tokens.cloud.create = create_slowly
    worker = threading.Thread(target=slow.reconcile, args=[lease_id])
    worker.start()
    assert asked.wait(60)
    world_with_tokens.age(lease_id, world_with_tokens.conf.engine.caller_grace + 1)
    assert (
        world_with_tokens.engine("other").reconcile(lease_id)
        == world_with_tokens.conf.engine.poll_interval
    )
    go_on.set()
    worker.join(60)
    world_with_tokens.check_active(lease_id)


def test_two_engines_that_are_woken_at_once_make_one_server(world):
    lease_id = world.launch()
    asked, made = threading.Barrier(2, timeout=60), []
    create = world.cloud.create

    def count(*arguments):
        made.append(arguments)
        return create(*arguments)

    world.cloud.create = count

    def reconcile(name):
        engine = world.engine(name)
        asked.wait()
        while world.lease(lease_id).status != Status.ACTIVE:
            engine.reconcile(lease_id)

    workers = [threading.Thread(target=reconcile, args=[name]) for name in ("one", "two")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    world.check_active(lease_id)
    assert len(made) == 1


def test_a_launch_whose_engine_died_while_it_asked_the_cloud_is_taken_up_by_its_successor(
    world_with_tokens,
):
    """The server was made and not recorded; no token is needed to find it."""
    lease_id, engine = world_with_tokens.launch(), world_with_tokens.engine()
    engine.callers.keep(lease_id, CALLER)
    world_with_tokens.fuse.left = 5  # two to own the lease, and all that the cloud does
    with pytest.raises(BaseException):  # noqa: B017  (it dies as by kill -9)
        engine.reconcile(lease_id)
    world_with_tokens.fuse.left = None
    assert world_with_tokens.lease(lease_id).server_id is None
    assert world_with_tokens.cloud.servers
    world_with_tokens.reconcile(lease_id)
    world_with_tokens.check_active(lease_id)


def test_a_cloud_that_falls_silent_when_asked_for_the_server_ends_the_launch(world):
    lease_id = world.launch()
    world.cloud.is_down = True
    world.reconcile(lease_id)
    lease = world.lease(lease_id)
    assert (lease.status, lease.fault_step) == (Status.ERROR, "create-server")
    assert lease.fault_message == "the cloud does not answer"
    assert lease.claims == ()


def test_a_server_that_the_cloud_made_all_the_same_is_deleted_when_it_turns_up(world):
    lease_id = world.launch()
    create = world.cloud.create

    def make_and_say_nothing(*arguments):
        create(*arguments)
        raise exceptions.CloudUnavailable(reason="Nova does not answer")

    world.cloud.create = make_and_say_nothing
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)


def test_a_silent_cloud_does_not_disturb_what_works(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.cloud.is_down = True
    world.reconcile(lease_id)
    world.check_active(lease_id)


def test_a_lease_released_while_the_cloud_is_silent_gives_its_gpus_back_and_ends_later(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.release(lease_id)
    world.cloud.is_down = True
    assert world.reconcile(lease_id) == world.conf.engine.poll_interval
    assert (world.lease(lease_id).status, world.used_mb()) == (Status.RELEASING, 0)
    world.cloud.is_down = False
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_a_cloud_that_shows_a_server_but_does_not_delete_it_keeps_no_gpu(world, monkeypatch):
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.release(lease_id)

    def refuse(_owner):
        raise exceptions.CloudUnavailable(reason="Nova failed (HTTP 503)")

    with monkeypatch.context() as patch:
        patch.setattr(world.cloud, "delete", refuse)
        assert world.reconcile(lease_id) == world.conf.engine.poll_interval
    assert (world.lease(lease_id).status, world.used_mb()) == (Status.RELEASING, 0)
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_a_shelved_server_gives_its_cgpus_back_and_stays_its_owners(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    server = world.cloud.servers[lease_id]
    world.cloud.servers[lease_id] = replace(server, status=ServerStatus.SHELVED, host=None)
    world.reconcile(lease_id)
    lease = world.lease(lease_id)
    assert (lease.status, lease.server_id, lease.claims) == (Status.RELEASED, None, ())
    assert list(world.cloud.servers) == [lease_id]
    assert world.endpoint.bindings == []


def test_a_server_that_moves_takes_its_binding_along_old_host_first(world):
    with world.database.write() as session:
        endpoints.register(session, "compute2", {"bindings": {}})
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.cloud.servers[lease_id] = replace(world.cloud.servers[lease_id], host="compute2")
    world.endpoint.calls.clear()
    world.reconcile(lease_id)
    port_id = world.lease(lease_id).port_id
    assert world.endpoint.calls == [("remove", HOST, port_id), ("apply", "compute2", port_id)]
    assert list(world.endpoint.bindings_by_host["compute2"]) == [port_id]
    assert world.lease(lease_id).status == Status.ACTIVE


def test_the_phases_of_a_launch_are_timed_where_they_happen(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    known = world.lease(lease_id).timings
    here = {timings.CLAIM, timings.CREATION, timings.ACTIVATION, timings.DEPLOYMENT}
    assert known.keys() == here | {timings.RODVR_CONFIGURATION}
    assert all(seconds >= 0 for seconds in known.values())
    assert known[timings.RODVR_CONFIGURATION] == 0.004


def forget(world, host):
    with world.database.write() as session:
        hosts.forget(session, host, timeout=None, servers_stay=True)


def test_a_lease_whose_gpu_host_is_gone_gives_everything_back_and_its_owner_keeps_the_vm(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    forget(world, "gpu1")
    assert world.reconcile(lease_id) is None
    lease = world.lease(lease_id)
    assert (lease.status, lease.claims, lease.bound_host) == (Status.ERROR, (), None)
    assert world.endpoint.bindings == []
    assert list(world.cloud.servers) == [lease_id]
    with world.database.write() as session:
        hosts.delete_forgotten(session)
        assert [host.name for host in hosts.page(session, limit=10)] == [HOST]
    world.release(lease_id)
    world.reconcile(lease_id)
    assert world.lease(lease_id).status == Status.RELEASED
    assert list(world.cloud.servers) == [lease_id]


def test_a_launch_whose_gpu_host_goes_away_fails_and_leaves_no_server(world):
    world.cloud.initial_status = ServerStatus.BUILD
    lease_id = world.launch()
    world.reconcile(lease_id)
    forget(world, "gpu1")
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.ERROR)


def test_a_release_no_longer_waits_for_a_compute_host_that_is_gone(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.endpoint.answers = False
    world.release(lease_id)
    world.reconcile(lease_id)
    assert world.lease(lease_id).status == Status.RELEASING
    world.endpoint.bindings_by_host.clear()  # it is gone
    forget(world, HOST)
    world.reconcile(lease_id)
    world.check_nothing_is_left(lease_id, Status.RELEASED)


def test_a_server_evacuated_from_a_compute_host_that_is_gone_is_wired_where_it_is_now(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    world.endpoint.bindings_by_host.clear()
    forget(world, HOST)
    with world.database.write() as session:
        endpoints.register(session, "compute2", {"bindings": {}})
    moved = replace(world.cloud.servers[lease_id], host="compute2")
    world.cloud.servers[lease_id] = moved
    world.reconcile(lease_id)
    assert world.lease(lease_id).bound_host == "compute2"
    assert list(world.endpoint.bindings_by_host) == ["compute2"]


def with_addresses(world, lease_id: str, ip: str, *others: str) -> None:
    server = world.cloud.servers[lease_id]
    port = replace(server.port, ip=ip, other_ips=others)
    world.cloud.servers[lease_id] = replace(server, port=port)


def bound_addresses(world, lease_id: str) -> tuple[str, tuple[str, ...]]:
    binding = world.endpoint.bindings_by_host[HOST][world.lease(lease_id).port_id]
    return binding.ip, binding.other_ips


def test_all_addresses_of_a_port_are_bound_also_those_that_it_gets_later(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    with_addresses(world, lease_id, "10.0.0.5", "10.0.1.9", "10.0.2.9")
    world.reconcile(lease_id)
    assert bound_addresses(world, lease_id) == ("10.0.0.5", ("10.0.1.9", "10.0.2.9"))
    assert world.lease(lease_id).port_other_ips == ["10.0.1.9", "10.0.2.9"]
    with_addresses(world, lease_id, "10.0.2.9")
    world.reconcile(lease_id)
    assert bound_addresses(world, lease_id) == ("10.0.2.9", ())
    assert world.lease(lease_id).port_other_ips is None


def test_new_addresses_of_a_port_stay_to_be_told_until_its_endpoint_has_them(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    with_addresses(world, lease_id, "10.0.0.5", "10.0.1.9")
    world.endpoint.answers = False
    world.reconcile(lease_id)
    assert world.lease(lease_id).port_other_ips is None
    world.endpoint.answers = True
    world.reconcile(lease_id)
    assert bound_addresses(world, lease_id) == ("10.0.0.5", ("10.0.1.9",))


def test_a_gpu_host_that_is_gone_is_not_asked_whom_it_still_admits(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    with world.database.write() as session:
        leases.update(session.connection(), lease_id, admitted_address="192.0.2.7")
    world.monitor.answers = False
    forget(world, "gpu1")
    world.reconcile(lease_id)
    lease = world.lease(lease_id)
    assert (lease.status, lease.claims, lease.admitted_address) == (Status.ERROR, (), None)


def test_each_change_of_a_leases_status_is_announced_to_those_who_wait_for_it(world):
    lease_id = world.launch()
    world.reconcile(lease_id)
    assert world.events(lease_id)[-2:] == ["boot", "activate"]
    assert world.announced == [lease_id, lease_id]
