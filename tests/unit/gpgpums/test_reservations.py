# SPDX-License-Identifier: Apache-2.0
"""Reservations never over-commit a GPU among themselves, at any moment, and keep what is free of their shares."""

from __future__ import annotations

import datetime
from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gsaas.gpgpums import reservations
from gsaas.gpgpums.policies.least_load_fit import LeastLoadFit
from gsaas.gpgpums.pool import Pool
from gsaas.objects.gpu import Gpu, WithheldReason
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.request import Request
from gsaas.objects.reservation import Reservation, ReservationStatus, ReservedShare, status_at

NOON = datetime.datetime(2026, 11, 24, 12, 0, 0)
POLICY = LeastLoadFit()
WHOLE = Request(1)
HALF = Request(1, "shared", 4000)


def hour(number: float) -> datetime.datetime:
    return NOON + datetime.timedelta(hours=number)


def cloud(number: int = 2, **more) -> list[Gpu]:
    return [Gpu(f"GPU-{index}", f"host{index}", index, 8000, **more) for index in range(number)]


def reserved(start: float, end: float, *shares: tuple[str, int], kept: bool = False) -> Reservation:
    return Reservation(
        *("r", "p", "u", "n", ReservationStatus.PENDING, {}, hour(start), hour(end), NOON),
        tuple(ReservedShare(place, uuid, size, kept) for place, (uuid, size) in enumerate(shares)),
    )


def admitted(gpus, others, request, start=0, end=1) -> Placement | Refusal:
    return reservations.admit(gpus, (), others, request, POLICY, hour(start), hour(end))


def test_a_reservation_is_placed_beside_those_that_overlap_it():
    others = [reserved(0, 2, ("GPU-0", 8000))]
    placement = admitted(cloud(), others, WHOLE, 1, 3)
    assert [share.gpu_uuid for share in placement.shares] == ["GPU-1"]
    assert isinstance(admitted(cloud(), others, Request(2), 1, 3), Refusal)


def test_one_that_begins_when_another_ends_gets_its_gpus():
    others = [reserved(0, 1, ("GPU-0", 8000)), reserved(2, 3, ("GPU-0", 8000))]
    assert isinstance(admitted(cloud(1), others, WHOLE, 1, 2), Placement)


def test_two_that_overlap_it_one_after_the_other_do_not_count_at_once():
    others = [reserved(0, 1, ("GPU-0", 4000)), reserved(1, 2, ("GPU-0", 4000))]
    assert isinstance(admitted(cloud(1), others, HALF, 0, 2), Placement)
    assert isinstance(
        admitted(cloud(1), [*others, reserved(0.5, 0.6, ("GPU-0", 4000))], HALF, 0, 2), Refusal
    )


def test_a_refusal_says_that_gpus_are_kept_for_reservations():
    refusal = admitted(cloud(1), [reserved(0, 1, ("GPU-0", 4000))], WHOLE)
    assert refusal.filters == (("reservation", 1),)
    assert "kept for a reservation" in refusal.reason


def test_what_leases_use_now_does_not_count_and_withheld_gpus_are_not_used():
    busy = cloud(1, used_mb=8000, exclusive=True, leases=1)
    assert isinstance(admitted(busy, [], WHOLE), Placement)
    assert isinstance(admitted(cloud(1, withheld=WithheldReason.WITHDRAWN), [], WHOLE), Refusal)


times = st.integers(0, 6)
wishes = st.lists(
    st.tuples(times, st.integers(1, 4), st.sampled_from([WHOLE, HALF, Request(2, "shared", 3000)])),
    max_size=12,
)


@given(wishes)
def test_whatever_is_admitted_fits_at_every_moment(wished):
    made: list[Reservation] = []
    for start, length, request in wished:
        answer = admitted(cloud(), made, request, start, start + length)
        if isinstance(answer, Placement):
            shares = [(share.gpu_uuid, share.memory_mb) for share in answer.shares]
            made.append(reserved(start, start + length, *shares))
    for moment in range(12):
        at_once: Counter[str] = Counter()
        for one in made:
            if one.start <= hour(moment) < one.end:
                for share in one.shares:
                    at_once[share.gpu_uuid] += share.memory_mb
        assert all(size <= 8000 for size in at_once.values())


@given(st.lists(st.tuples(times, st.integers(1, 4), st.integers(1, 3)), max_size=12), times)
def test_the_most_that_is_reserved_is_that_of_the_worst_moment(wished, start):
    made = [reserved(start, start + length, ("GPU-0", size)) for start, length, size in wished]
    expected = max(
        sum(size for begins, length, size in wished if begins <= moment < begins + length)
        for moment in range(start, start + 3)
    )
    most = reservations.most_reserved(made, hour(start), hour(start + 3))
    assert most.get("GPU-0", 0) == expected


def test_the_shares_of_a_reservation_are_looked_at_once_however_many_overlap_it():
    class Shares(tuple):
        looks = 0

        def __iter__(self):
            Shares.looks += 1
            return super().__iter__()

    shares = Shares((ReservedShare(0, "GPU-0", 1),))
    overlapping = [reserved(begins / 100, 2) for begins in range(50)]
    made = [Reservation(**{**vars(one), "shares": shares}) for one in overlapping]
    assert reservations.most_reserved(made, hour(0), hour(1)) == {"GPU-0": 50}
    assert Shares.looks == 50


def test_what_is_free_is_kept_at_once_and_the_rest_once_leases_return_it():
    wanted = reserved(0, 1, ("GPU-0", 4000), ("GPU-0", 4000), ("GPU-1", 8000), ("gone", 1))
    gpus = {gpu.uuid: gpu for gpu in (cloud()[0].with_(used_mb=3000), cloud()[1].with_(used_mb=1))}
    assert reservations.to_keep(wanted, gpus) == [wanted.shares[0]]
    idle = {gpu.uuid: gpu for gpu in cloud()}
    assert reservations.to_keep(wanted, idle) == list(wanted.shares[:3])


def test_what_is_kept_is_not_kept_twice():
    wanted = reserved(0, 1, ("GPU-0", 4000), kept=True)
    assert reservations.to_keep(wanted, {gpu.uuid: gpu for gpu in cloud()}) == []


def test_other_leases_get_nothing_of_what_is_kept_and_are_told_so():
    pool = Pool(gpu.with_(reserved_mb=5000) for gpu in cloud())
    assert isinstance(pool.propose(Request(2, "shared", 3000), POLICY), Placement)
    refusal = pool.propose(HALF, POLICY)
    assert (refusal.impossible, refusal.filters) == (False, (("reservation", 2),))
    assert isinstance(pool.propose(WHOLE, POLICY), Refusal)


def test_a_launch_within_a_reservation_sees_what_this_keeps_and_nothing_else():
    wanted = reserved(0, 1, ("GPU-0", 4000), ("GPU-0", 2000), kept=True)
    taken = ReservedShare(2, "GPU-0", 1000, kept=True, lease_id="lease-1")
    waits = ReservedShare(3, "GPU-1", 8000)
    wanted = Reservation(**{**vars(wanted), "shares": (*wanted.shares, taken, waits)})
    gpus = {gpu.uuid: gpu for gpu in cloud()}
    pool = reservations.pool_within(wanted, gpus, ())
    assert [(gpu.uuid, gpu.free_mb) for gpu in pool] == [("GPU-0", 6000), ("GPU-1", 0)]


def refused(reservation: Reservation, request: Request) -> Refusal:
    gpus = {gpu.uuid: gpu for gpu in cloud()}
    answer = reservations.propose_within(reservation, gpus, (), request, POLICY)
    assert isinstance(answer, Refusal)
    return answer


def test_a_launch_that_is_larger_than_its_reservation_never_fits():
    full = reserved(0, 1, ("GPU-0", 8000), ("GPU-1", 8000), kept=True)
    refusal = refused(full, Request(3))
    assert (refusal.impossible, refusal.nearest) == (True, Request(2))
    assert refusal.reason == "reservation r has only 2 cGPUs"
    halves = reserved(0, 1, ("GPU-0", 4000), kept=True)
    assert refused(halves, Request(2, "shared", 4000)).reason == "reservation r has only 1 cGPU"


def test_a_launch_in_a_reservation_that_is_in_use_may_fit_later():
    waits = reserved(0, 1, ("GPU-0", 8000), ("GPU-1", 8000))
    refusal = refused(waits, WHOLE)
    assert (refusal.impossible, refusal.filters) == (False, (("in-use", 2),))
    assert refusal.reason == (
        "in reservation r: 2 of 2 GPUs are in use; nothing smaller would fit now either"
    )
    taken = ReservedShare(0, "GPU-0", 4000, kept=True, lease_id="lease-1")
    full = Reservation(**{**vars(waits), "shares": (taken,)})
    assert refused(full, HALF).filters == (("memory", 1),)


def asking(request: Request, *shares: ReservedShare, start: float = 0) -> Reservation:
    """A reservation of *request* for an hour that has these shares."""
    return Reservation(
        *("r", "p", "u", "n", ReservationStatus.PENDING, request.to_dict()),
        *(hour(start), hour(start + 1), NOON, shares),
    )


def halves(*uuids: str, **more) -> list[ReservedShare]:
    return [ReservedShare(place, uuid, 4000, **more) for place, uuid in enumerate(uuids)]


def moved(one: Reservation, gpus, others=(), *, keeps=False, now=0.0) -> dict[int, str]:
    """Position of each share that moves -> its new GPU."""
    found = reservations.moves(one, gpus, (), others, POLICY, hour(now), keeps=keeps)
    return {share.position: to.gpu_uuid for share, to in found}


def failed(gpu: Gpu, reason: WithheldReason = WithheldReason.WITHDRAWN) -> Gpu:
    return gpu.with_(withheld=reason)


TWO_HALVES = HALF.with_(count=2)


def test_only_what_is_on_a_gpu_out_of_service_moves():
    first, *others = cloud(3)
    one = asking(TWO_HALVES, *halves("GPU-0", "GPU-1"))
    assert moved(one, [first, *others]) == {}
    for reason in (WithheldReason.DISABLED, WithheldReason.WITHDRAWN, WithheldReason.HOST_SILENT):
        assert moved(one, [failed(first, reason), *others]).keys() == {0}
    assert moved(one, others).keys() == {0}, "its GPU is gone"


def test_what_a_lease_has_does_not_move():
    first, *others = cloud()
    one = asking(HALF, *halves("GPU-0", kept=True, lease_id="lease-1"))
    assert moved(one, [failed(first), *others]) == {}


def test_it_moves_beside_those_that_overlap_it_and_stays_if_there_is_no_room():
    first, second, third = cloud(3)
    one = asking(WHOLE, ReservedShare(0, "GPU-0", 8000))
    gpus = [failed(first), second, third]
    other = reserved(0.5, 2, ("GPU-1", 1))
    assert moved(one, gpus, [other]) == {0: "GPU-2"}
    assert moved(one, gpus, [other, reserved(0, 0.1, ("GPU-2", 1))]) == {}
    assert moved(one, gpus, [other, reserved(0, 0.1, ("GPU-2", 1))], now=0.1) == {0: "GPU-2"}


def test_as_many_shares_move_as_fit_beside_those_that_stay():
    first, second = cloud()
    one = asking(HALF.with_(count=3), *halves("GPU-0", "GPU-0", "GPU-1"))
    assert moved(one, [failed(first), second]) == {0: "GPU-1"}


def test_a_whole_gpu_moves_to_a_whole_gpu_of_another_size():
    first, second = cloud()
    one = asking(WHOLE, ReservedShare(0, "GPU-0", 8000))
    [(_, to)] = reservations.moves(
        one, [failed(first), second.with_(memory_mb=9000)], (), (), POLICY, NOON, keeps=False
    )
    assert (to.gpu_uuid, to.memory_mb) == ("GPU-1", 9000)


def test_until_it_keeps_its_shares_leases_do_not_count_and_then_only_what_is_free():
    first, second, third = cloud(3)
    gpus = [failed(first), second.with_(used_mb=5000, leases=1), third.with_(reserved_mb=5000)]
    one = asking(HALF, *halves("GPU-0"))
    assert moved(one, gpus, keeps=True) == {}
    assert moved(one, gpus, [reserved(0, 1, ("GPU-2", 5000))]) == {0: "GPU-1"}
    free = [*gpus[:2], third.with_(reserved_mb=3000)]
    pair = asking(TWO_HALVES, *halves("GPU-0", "GPU-0"))
    assert moved(pair, free, keeps=True) == {0: "GPU-2"}, "the second has no room any more"


def on_hosts(*hosts: str) -> list[Gpu]:
    return [Gpu(f"GPU-{index}", host, index, 8000) for index, host in enumerate(hosts)]


def test_one_that_is_spread_stays_spread():
    first, *others = on_hosts("a", "b", "b")
    one = asking(HALF.with_(count=2, hosts="spread"), *halves("GPU-0", "GPU-1"))
    assert moved(one, [failed(first), *others]) == {}
    assert moved(one, [failed(first), *others, *cloud(4)[3:]]) == {0: "GPU-3"}


def test_one_that_is_on_one_host_stays_on_one():
    request = WHOLE.with_(count=2, hosts="one")
    one = asking(request, ReservedShare(0, "GPU-0", 8000), ReservedShare(1, "GPU-1", 8000))
    first, second, *others = on_hosts("a", "a", "b", "c", "c")
    assert moved(one, [failed(first), second, *others]) == {}
    assert moved(one, [failed(first), failed(second), *others]) == {0: "GPU-3", 1: "GPU-4"}
    assert moved(one, [failed(first), second, *others, second.with_(uuid="GPU-5")]) == {0: "GPU-5"}


@given(wishes, st.sets(st.integers(0, 2), min_size=1, max_size=2))
def test_whatever_moves_fits_at_every_moment(wished, out: set[int]):
    made: list[Reservation] = []
    for number, (start, length, request) in enumerate(wished):
        answer = admitted(cloud(3), made, request, start, start + length)
        if isinstance(answer, Placement):
            shares = (
                ReservedShare(n, one.gpu_uuid, one.memory_mb) for n, one in enumerate(answer.shares)
            )
            one = asking(request, *shares, start=start)
            made.append(replace(one, id=str(number), end=hour(start + length)))
    gpus = [failed(gpu) if gpu.device_index in out else gpu for gpu in cloud(3)]
    for number, one in enumerate(made):
        others = [other for other in made if other is not one]
        found = reservations.moves(one, gpus, (), others, POLICY, NOON, keeps=False)
        to = {share.position: to for share, to in found}
        assert all(gpus[int(there.gpu_uuid[4:])].withheld is None for there in to.values())
        shares = tuple(
            replace(share, gpu_uuid=to[share.position].gpu_uuid) if share.position in to else share
            for share in one.shares
        )
        made[number] = replace(one, shares=shares)
    assert max(reservations.most_reserved(made, hour(0), hour(12)).values(), default=0) <= 8000


def test_a_reservation_is_active_from_its_beginning_until_its_end():
    one = reserved(1, 2)
    found = [status_at(one, hour(number)) for number in (0, 1, 1.5, 2)]
    assert found == ["PENDING", "ACTIVE", "ACTIVE", "ENDED"]
    cancelled = Reservation(**{**vars(one), "status": ReservationStatus.CANCELLED})
    assert status_at(cancelled, hour(1)) == ReservationStatus.CANCELLED


def test_a_reservation_that_has_begun_by_one_clock_is_not_pending_by_a_slower_one():
    one = reserved(1, 2)
    slower = hour(1) - datetime.timedelta(milliseconds=300)
    begun = Reservation(**{**vars(one), "status": ReservationStatus.ACTIVE})
    assert status_at(begun, slower) == ReservationStatus.ACTIVE
    assert status_at(begun, hour(2)) == ReservationStatus.ENDED
    at_once = Reservation(**{**vars(one), "created_at": one.start})
    assert status_at(at_once, slower) == ReservationStatus.ACTIVE
    assert status_at(one, slower) == ReservationStatus.PENDING


def with_end(end: float | None, *claims: tuple[str, int], reservation: str | None = None) -> Lease:
    ends_at = None if end is None else hour(end)
    return Lease(
        *("l", "p", "u", "n", Status.ACTIVE, len(claims), "exclusive", None, "any"),
        ends_at=ends_at,
        reservation_id=reservation,
        claims=tuple(Claim("l", place, uuid, size) for place, (uuid, size) in enumerate(claims)),
    )


MEMORY = {"GPU-0": 8000, "GPU-1": 8000}


def test_a_lease_cannot_be_postponed_into_a_reservation_of_its_gpus():
    others = [reserved(4, 6, ("GPU-0", 4000)), reserved(3, 9, ("GPU-1", 8000))]
    lease = with_end(2, ("GPU-0", 8000))
    assert reservations.first_in_the_way(others, lease, MEMORY, hour(5)) == hour(4)
    assert reservations.first_in_the_way(others, lease, MEMORY, None) == hour(4)
    assert reservations.first_in_the_way(others, lease, MEMORY, hour(4)) is None


def test_it_can_if_there_is_room_beside_all_of_them():
    half = with_end(2, ("GPU-0", 4000))
    others = [reserved(3, 5, ("GPU-0", 4000))]
    assert reservations.first_in_the_way(others, half, MEMORY, hour(9)) is None
    others.append(reserved(4, 6, ("GPU-0", 1000)))
    assert reservations.first_in_the_way(others, half, MEMORY, hour(9)) == hour(4)
    # One after the other, they leave room.
    apart = [reserved(3, 5, ("GPU-0", 4000)), reserved(5, 6, ("GPU-0", 4000))]
    assert reservations.first_in_the_way(apart, half, MEMORY, hour(9)) is None


def test_a_lease_may_outlast_the_reservation_that_it_was_launched_in():
    own = [reserved(0, 9, ("GPU-0", 8000))]
    lease = with_end(2, ("GPU-0", 8000), reservation="r")
    assert reservations.first_in_the_way(own, lease, MEMORY, hour(12)) is None


def test_a_lease_without_an_end_has_its_gpus_all_the_time():
    others = [reserved(3, 5, ("GPU-0", 8000))]
    assert (
        reservations.first_in_the_way(others, with_end(None, ("GPU-0", 8000)), MEMORY, hour(9))
        is None
    )


def test_what_leases_have_until_then_counts_if_it_is_asked_for():
    def placed(lasting: dict[str, int]) -> Placement | Refusal:
        return reservations.admit(cloud(), (), [], WHOLE, POLICY, hour(0), hour(1), lasting=lasting)

    placement = placed({"GPU-0": 1000})
    assert [share.gpu_uuid for share in placement.shares] == ["GPU-1"]
    assert isinstance(placed({"GPU-0": 1000, "GPU-1": 8000}), Refusal)
