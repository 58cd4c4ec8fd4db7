# SPDX-License-Identifier: Apache-2.0
"""The next step of a lease, by its row and its observed state."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from gsaas.cloud.base import Port, Server, ServerStatus
from gsaas.engine import steps
from gsaas.engine.steps import ObservedState, Timeouts
from gsaas.objects.lease import Claim, ClaimedGpu, GpuHost, Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.move import Stage
from tests.support import rows

BOOT_TIMEOUT = 600
TIMEOUTS = Timeouts(boot=BOOT_TIMEOUT, caller=60)
CREATED = datetime.datetime(2026, 1, 1, 12, 0)
IN_TIME = CREATED + datetime.timedelta(seconds=BOOT_TIMEOUT)
TOO_LATE = IN_TIME + datetime.timedelta(seconds=1)

PORT = Port("port-1", "tapport-1", "fa:16:3e:00:00:01", "10.0.0.5")
OTHER_PORT = Port("port-2", "tapport-2", "fa:16:3e:00:00:02", "10.0.0.6")

ACTIVE = Server("server-1", ServerStatus.ACTIVE, "here", PORT)
BUILD = Server("server-1", ServerStatus.BUILD, "here", PORT)
UNPLACED = Server("server-1", ServerStatus.BUILD, None, None)
FAILED = Server("server-1", ServerStatus.ERROR, "here", PORT, "no disk left")
MOVED = Server("server-1", ServerStatus.ACTIVE, "there", PORT)
SHELVED = Server("server-1", ServerStatus.SHELVED, None, PORT)
DELETING = Server("server-1", ServerStatus.DELETING, "here", None)
PORTLESS = Server("server-1", ServerStatus.ACTIVE, "here", None)
ONLY_IPV6 = replace(PORTLESS, lacks_ipv4=True)
REPLUGGED = Server("server-1", ServerStatus.ACTIVE, "here", OTHER_PORT)


def failed_without_a_reason(at: datetime.datetime) -> Server:
    return Server("server-1", ServerStatus.ERROR, None, None, failed_at=at)


RECORDED = {
    "server_id": "server-1",
    "server_host": "here",
    "port_id": PORT.id,
    "port_tap": PORT.tap,
    "port_mac": PORT.mac,
    "port_ip": PORT.ip,
}
BOUND = {**RECORDED, "bound_host": "here"}
TWO_ADDRESSES = {**BOUND, "port_other_ips": ["10.0.1.9"]}
SECOND_ADDRESS = replace(ACTIVE, port=replace(PORT, other_ips=("10.0.1.9",)))
SWAPPED = replace(ACTIVE, port=replace(PORT, ip="10.0.1.9", other_ips=(PORT.ip,)))
NO_BINDINGS: dict[str, bool] = {}
WAITS_FOR_THE_TAP = {PORT.id: False}
INSTALLED = {PORT.id: True}
NO_ENDPOINT = None
CLOUD_DOWN = ObservedState(None, NO_ENDPOINT, cloud_error="Nova does not answer")


def lease(status: Status, claims: int = 1, **columns: object) -> Lease:
    columns = {"timings": {"activation": 1.3}, "locality": "any", **columns}
    return rows.new_lease(status=status, created_at=CREATED, **columns).with_(
        claims=tuple(Claim("lease-1", position, "GPU-a", 2048) for position in range(claims))
    )


def next_step(
    lease: Lease, observed: ObservedState, now: datetime.datetime = IN_TIME
) -> steps.Step:
    return steps.next_step(lease, observed, now, TIMEOUTS)


@pytest.mark.parametrize("server", [None, UNPLACED, BUILD, ACTIVE, FAILED])
def test_a_claimed_lease_asks_for_its_server_whatever_a_former_engine_left(server):
    """`create` returns the server that is there, so a crash before it was recorded costs nothing."""
    assert (
        next_step(lease(Status.CLAIMED), ObservedState(server, NO_ENDPOINT)) == steps.CreateServer()
    )


AFTER_GRACE = CREATED + datetime.timedelta(seconds=61)
NO_TOKEN = ObservedState(None, NO_ENDPOINT, can_create=False)


def test_an_engine_without_the_callers_token_leaves_the_launch_to_the_one_that_has_it():
    soon = CREATED + datetime.timedelta(seconds=59)
    assert isinstance(next_step(lease(Status.CLAIMED), NO_TOKEN, soon), steps.Wait)


def test_a_launch_whose_token_was_lost_fails_and_says_to_launch_again():
    lost = next_step(lease(Status.CLAIMED), NO_TOKEN, AFTER_GRACE)
    assert isinstance(lost, steps.Fail)
    assert lost.step == "create-server"
    assert "launch again" in lost.message


def test_a_server_that_a_former_engine_made_is_taken_up_without_any_token():
    made = ObservedState(BUILD, NO_ENDPOINT, can_create=False)
    assert next_step(lease(Status.CLAIMED), made, AFTER_GRACE) == steps.CreateServer()


def test_while_the_cloud_is_silent_no_lease_fails_for_want_of_a_server():
    blind = ObservedState(None, NO_ENDPOINT, can_create=False, cloud_error="Nova does not answer")
    assert isinstance(next_step(lease(Status.CLAIMED), blind, AFTER_GRACE), steps.Wait)


@pytest.mark.parametrize(
    ("columns", "server", "endpoint", "step"),
    [
        ({"server_id": "server-1"}, UNPLACED, NO_ENDPOINT, steps.Wait),
        ({"server_id": "server-1"}, BUILD, NO_BINDINGS, steps.RecordServer(BUILD)),
        (RECORDED, BUILD, NO_ENDPOINT, steps.Wait),
        (RECORDED, BUILD, NO_BINDINGS, steps.RecordBoundHost("here")),
        (BOUND, BUILD, NO_BINDINGS, steps.ApplyBinding("here")),
        (BOUND, BUILD, WAITS_FOR_THE_TAP, steps.ApplyBinding("here")),
        (BOUND, BUILD, INSTALLED, steps.Wait),
        (BOUND, ACTIVE, WAITS_FOR_THE_TAP, steps.ApplyBinding("here")),
        (BOUND, ACTIVE, INSTALLED, steps.Activate()),
        (BOUND, MOVED, NO_BINDINGS, steps.RemoveBinding("here")),
        (RECORDED, MOVED, NO_BINDINGS, steps.RecordServer(MOVED)),
        (BOUND, FAILED, INSTALLED, steps.Fail),
        (BOUND, DELETING, INSTALLED, steps.Wait),
        (BOUND, None, NO_ENDPOINT, steps.Release),
        (BOUND, SHELVED, NO_ENDPOINT, steps.ReleaseShelved()),
        ({"server_id": "server-1"}, PORTLESS, NO_BINDINGS, steps.Wait),
        ({"server_id": "server-1"}, ONLY_IPV6, NO_BINDINGS, steps.Fail),
        ({**BOUND, "timings": {}}, BUILD, INSTALLED, steps.Wait),
        ({**BOUND, "timings": {}}, ACTIVE, INSTALLED, steps.RecordActivationTime()),
        ({**BOUND, "timings": None}, ACTIVE, INSTALLED, steps.RecordActivationTime()),
    ],
)
def test_a_booting_lease_is_wired_while_its_server_boots(columns, server, endpoint, step):
    found = next_step(lease(Status.BOOTING, **columns), ObservedState(server, endpoint))
    assert found == step if not isinstance(step, type) else isinstance(found, step)


@pytest.mark.parametrize(
    ("columns", "server", "endpoint", "step"),
    [
        (BOUND, ACTIVE, INSTALLED, steps.Idle()),
        (BOUND, ACTIVE, WAITS_FOR_THE_TAP, steps.Idle()),  # a hard reboot: the endpoint has it
        (BOUND, ACTIVE, NO_BINDINGS, steps.ApplyBinding("here")),
        (BOUND, BUILD, INSTALLED, steps.Idle()),
        (RECORDED, UNPLACED, NO_ENDPOINT, steps.Idle()),
        (BOUND, UNPLACED, NO_ENDPOINT, steps.RemoveBinding("here")),  # its interface was taken away
        (BOUND, PORTLESS, INSTALLED, steps.RemoveBinding("here")),
        (BOUND, MOVED, NO_BINDINGS, steps.RemoveBinding("here")),
        (BOUND, REPLUGGED, INSTALLED, steps.RemoveBinding("here")),
        (RECORDED, REPLUGGED, NO_BINDINGS, steps.RecordServer(REPLUGGED)),
        (BOUND, SECOND_ADDRESS, INSTALLED, steps.ChangeBinding("here", SECOND_ADDRESS)),
        (TWO_ADDRESSES, SECOND_ADDRESS, INSTALLED, steps.Idle()),
        (TWO_ADDRESSES, SWAPPED, INSTALLED, steps.Idle()),  # the cloud lists them in another order
        (TWO_ADDRESSES, ACTIVE, INSTALLED, steps.ChangeBinding("here", ACTIVE)),
        (BOUND, None, NO_ENDPOINT, steps.Release("its server was deleted")),
        (BOUND, FAILED, INSTALLED, steps.Idle()),  # a resize that failed: its owner's business
        (BOUND, SHELVED, NO_ENDPOINT, steps.ReleaseShelved()),
        (RECORDED, SHELVED, NO_ENDPOINT, steps.ReleaseShelved()),
    ],
)
def test_an_active_lease_follows_its_server(columns, server, endpoint, step):
    assert next_step(lease(Status.ACTIVE, **columns), ObservedState(server, endpoint)) == step


def test_an_active_lease_stays_as_it_is_while_the_cloud_is_silent():
    assert next_step(lease(Status.ACTIVE, **BOUND), CLOUD_DOWN) == steps.Idle()


def test_a_server_that_failed_is_quoted_with_what_its_owner_can_do():
    failed = lease(Status.BOOTING, **BOUND, locality="local")
    step = next_step(failed, ObservedState(FAILED, INSTALLED))
    assert step == steps.Fail(
        "boot-server",
        "the cloud says of server server-1: no disk left; "
        "locality local leaves fewer hosts to choose from than any",
    )


@pytest.mark.parametrize("status", [Status.RELEASING, Status.ERROR])
@pytest.mark.parametrize(
    ("columns", "claims", "observed", "step"),
    [
        (BOUND, 1, ObservedState(ACTIVE, INSTALLED), steps.RemoveBinding("here")),
        (BOUND, 1, ObservedState(None, NO_ENDPOINT), steps.RemoveBinding("here")),
        (RECORDED, 1, ObservedState(ACTIVE, NO_BINDINGS), steps.DeleteServer()),
        (RECORDED, 1, ObservedState(None, NO_ENDPOINT), steps.DeleteServer()),
        ({}, 1, ObservedState(BUILD, NO_BINDINGS), steps.DeleteServer()),  # made, never recorded
        ({}, 1, ObservedState(None, NO_ENDPOINT), steps.ReturnClaims()),
    ],
)
def test_everything_is_given_back_binding_first_and_claims_last(
    status, columns, claims, observed, step
):
    assert next_step(lease(status, claims, **columns), observed) == step


@pytest.mark.parametrize("status", [Status.RELEASING, Status.ERROR])
def test_an_endpoint_that_does_not_confirm_delays_the_claims_but_not_the_end_of_the_server(status):
    bound = lease(status, **BOUND)
    assert (
        next_step(bound, ObservedState(ACTIVE, INSTALLED, endpoint_unconfirmed=True))
        == steps.DeleteServer()
    )
    bound = lease(status, bound_host="here", port_id=PORT.id)
    assert isinstance(
        next_step(bound, ObservedState(None, NO_ENDPOINT, endpoint_unconfirmed=True)), steps.Wait
    )


@pytest.mark.parametrize("status", [Status.RELEASING, Status.ERROR])
def test_a_silent_cloud_delays_the_end_of_the_server_but_not_of_the_claims(status):
    assert next_step(lease(status, **BOUND), CLOUD_DOWN) == steps.RemoveBinding("here")
    unconfirmed = ObservedState(
        None, NO_ENDPOINT, endpoint_unconfirmed=True, cloud_error="Nova does not answer"
    )
    assert isinstance(next_step(lease(status, **BOUND), unconfirmed), steps.Wait)
    assert next_step(lease(status, **RECORDED), CLOUD_DOWN) == steps.ReturnClaims()
    assert isinstance(next_step(lease(status, claims=0, **RECORDED), CLOUD_DOWN), steps.Wait)


def test_a_lease_is_not_finished_before_the_cloud_has_said_that_there_is_no_server():
    assert isinstance(next_step(lease(Status.RELEASING, claims=0), CLOUD_DOWN), steps.Wait)


@pytest.mark.parametrize("status", [Status.ERROR, Status.RELEASED])
def test_a_server_that_turns_up_after_its_lease_is_over_is_deleted(status):
    late = ObservedState(BUILD, NO_BINDINGS)
    assert next_step(lease(status, claims=0), late) == steps.DeleteServer()


@pytest.mark.parametrize(
    ("status", "step"),
    [
        (Status.RELEASING, steps.Finish()),
        (Status.ERROR, steps.Idle()),
        (Status.RELEASED, steps.Idle()),
    ],
)
def test_a_lease_that_has_nothing_left_ends_and_one_in_error_waits_for_its_owner(status, step):
    assert next_step(lease(status, claims=0), ObservedState(None, NO_ENDPOINT)) == step


@pytest.mark.parametrize(
    ("columns", "server", "endpoint", "missing"),
    [
        ({"server_id": "server-1"}, UNPLACED, NO_ENDPOINT, "chose no host"),
        (RECORDED, ACTIVE, NO_ENDPOINT, "no RODVR endpoint"),
        (BOUND, ACTIVE, NO_BINDINGS, "did not connect it"),
        (BOUND, ACTIVE, WAITS_FOR_THE_TAP, "did not connect it"),
        (BOUND, BUILD, INSTALLED, "still in state BUILD"),
        (RECORDED, failed_without_a_reason(TOO_LATE), NO_ENDPOINT, "in state ERROR"),
    ],
)
def test_a_lease_that_is_not_ready_in_time_fails_and_says_what_was_missing(
    columns, server, endpoint, missing
):
    late = next_step(lease(Status.BOOTING, **columns), ObservedState(server, endpoint), TOO_LATE)
    assert isinstance(late, steps.Fail)
    assert late.step == "boot-server"
    assert missing in late.message


def test_a_lease_whose_cloud_fell_silent_while_it_booted_fails_and_says_so():
    late = next_step(lease(Status.BOOTING, **BOUND), CLOUD_DOWN, TOO_LATE)
    assert isinstance(late, steps.Fail)
    assert "Nova does not answer" in late.message


def test_a_lease_that_got_ready_at_the_last_moment_becomes_active():
    ready = lease(Status.BOOTING, **BOUND)
    assert next_step(ready, ObservedState(ACTIVE, INSTALLED), TOO_LATE) == steps.Activate()


def test_a_claimed_lease_without_a_server_fails_in_the_end():
    late = next_step(lease(Status.CLAIMED), ObservedState(None, NO_ENDPOINT), TOO_LATE)
    assert isinstance(late, steps.Fail)
    assert late.step == "create-server"


PLAIN = {"plain_server_id": "server-1", "server_id": "server-1"}


@pytest.mark.parametrize(
    ("status", "columns", "end"),
    [(Status.BOOTING, RECORDED, steps.Fail), (Status.QUEUED, PLAIN, steps.LeaveQueue)],
)
def test_the_reason_why_a_server_failed_is_awaited_for_a_moment(status, columns, end):
    """Nova stores the state before the fault."""
    failed = lease(status, **columns)
    for seconds_ago, expected in ((0, steps.Wait), (4, steps.Wait), (6, end)):
        for ago in (seconds_ago, -seconds_ago):  # clocks may differ
            server = failed_without_a_reason(IN_TIME - datetime.timedelta(seconds=ago))
            assert isinstance(next_step(failed, ObservedState(server, NO_ENDPOINT)), expected)
    explained = replace(failed_without_a_reason(IN_TIME), fault="no disk left")
    step = next_step(failed, ObservedState(explained, NO_ENDPOINT))
    assert isinstance(step, end)
    assert "no disk left" in str(step)


@pytest.mark.parametrize(
    ("status", "observed", "step"),
    [
        (Status.CLAIMED, ObservedState(UNPLACED, NO_ENDPOINT), steps.TakePlainServer(UNPLACED)),
        (Status.CLAIMED, ObservedState(FAILED, NO_ENDPOINT), steps.TakePlainServer(FAILED)),
        (Status.CLAIMED, ObservedState(None, NO_ENDPOINT), steps.Release),
        (Status.CLAIMED, CLOUD_DOWN, steps.Wait),
        (Status.QUEUED, ObservedState(BUILD, NO_ENDPOINT), steps.Idle()),
        (Status.QUEUED, CLOUD_DOWN, steps.Idle()),
        (Status.QUEUED, ObservedState(None, NO_ENDPOINT), steps.LeaveQueue),
        (Status.QUEUED, ObservedState(FAILED, NO_ENDPOINT), steps.LeaveQueue),
        (Status.QUEUED, ObservedState(SHELVED, NO_ENDPOINT), steps.LeaveQueue),
    ],
)
def test_the_server_of_a_plain_lease_is_taken_as_its_owner_made_it(status, observed, step):
    found = next_step(lease(status, **PLAIN), observed)
    assert found == step if not isinstance(step, type) else isinstance(found, step)


@pytest.mark.parametrize(
    "server", [None, UNPLACED, BUILD, ACTIVE, FAILED, MOVED, SHELVED, DELETING]
)
@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("server_id", ["server-1", None])
def test_no_plain_server_is_ever_made_or_deleted(status, server, server_id):
    plain = lease(status, **{**PLAIN, "server_id": server_id})
    found = next_step(plain, ObservedState(server, NO_BINDINGS))
    assert not isinstance(found, steps.CreateServer | steps.DeleteServer)


@pytest.mark.parametrize("columns", [PLAIN, RECORDED])
def test_a_server_without_a_port_may_be_on_its_way_out(columns):
    """Nova says for a moment that a server is ACTIVE which was deleted while it was built, and has no port."""
    booting = lease(Status.BOOTING, **columns)
    assert isinstance(next_step(booting, ObservedState(PORTLESS, NO_BINDINGS)), steps.Wait)
    assert isinstance(next_step(booting, ObservedState(None, NO_BINDINGS)), steps.Release)
    late = next_step(booting, ObservedState(PORTLESS, NO_BINDINGS), TOO_LATE)
    assert isinstance(late, steps.Fail)
    assert "no port" in late.message


@pytest.mark.parametrize(
    ("server", "step"),
    [(None, steps.Release("its server was deleted")), (FAILED, steps.Idle())],
)
def test_a_plain_lease_in_error_ends_when_its_owner_deletes_the_server(server, step):
    failed = lease(Status.ERROR, claims=0, plain_server_id="server-1")
    assert next_step(failed, ObservedState(server, NO_ENDPOINT)) == step
    assert isinstance(next_step(failed, CLOUD_DOWN), steps.Wait)


def test_a_plain_lease_that_is_over_forgets_its_server_before_its_claims_are_returned():
    over = lease(Status.RELEASING, **PLAIN)
    assert next_step(over, ObservedState(ACTIVE, NO_BINDINGS)) == steps.ForgetServer()
    forgotten = over.with_(server_id=None)
    assert next_step(forgotten, ObservedState(None, NO_BINDINGS)) == steps.ReturnClaims()


UNFOLLOWED = [
    pytest.param(CLOUD_DOWN, id="the cloud does not answer"),
    pytest.param(ObservedState(ACTIVE, NO_ENDPOINT), id="its host has no endpoint"),
]


def moving(stage: Stage, **columns: object) -> Lease:
    there = Claim("lease-1", 0, "GPU-b", 2048)
    columns = {**RECORDED, "moving": stage, "moving_since": CREATED, **columns}
    return lease(Status.ACTIVE, **columns).with_(
        claims=(located(Claim("lease-1", 0, "GPU-a", 2048)),), others=(located(there),)
    )


def located(claim: Claim) -> Claim:
    host = GpuHost("gpu1", "192.168.50.11", False, None, None, None)
    return replace(claim, claimed_gpu=ClaimedGpu(claim.gpu_uuid, 8308, None, host))


@pytest.mark.parametrize("observed", UNFOLLOWED)
def test_a_move_is_given_up_in_time_though_its_consumer_cannot_be_followed(observed):
    lasting = moving(Stage.STARTING)
    assert isinstance(next_step(lasting, observed, IN_TIME), steps.Idle | steps.Wait)
    assert isinstance(next_step(lasting, observed, TOO_LATE), steps.UndoMove)


@pytest.mark.parametrize("observed", UNFOLLOWED)
def test_a_move_returns_its_other_gpus_though_its_consumer_cannot_be_followed(observed):
    assert next_step(moving(Stage.ENDING), observed) == steps.CleanUpMove()
    confirmed = replace(observed, move_cleanup_requested=True)
    assert next_step(moving(Stage.ENDING), confirmed) == steps.EndMove()


@pytest.mark.parametrize("observed", UNFOLLOWED)
def test_former_gpus_are_left_without_its_consumer_only_if_no_binding_leads_to_them(observed):
    assert next_step(moving(Stage.SWITCHED), observed) == steps.LeaveFormerGpus()
    bound = moving(Stage.SWITCHED, bound_host="here")
    assert isinstance(next_step(bound, observed), steps.Idle | steps.Wait)
