# SPDX-License-Identifier: Apache-2.0
"""Reservations never over-commit a GPU among themselves, at any moment, and keep what is free of their shares."""

from __future__ import annotations

import datetime
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from gsaas.gpgpums import reservations
from gsaas.gpgpums.policies.least_load_fit import LeastLoadFit
from gsaas.gpgpums.pool import Pool
from gsaas.objects.gpu import Gpu, WithheldReason
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


def test_a_reservation_is_active_from_its_beginning_until_its_end():
    one = reserved(1, 2)
    found = [status_at(one, hour(number)) for number in (0, 1, 1.5, 2)]
    assert found == ["PENDING", "ACTIVE", "ACTIVE", "ENDED"]
    cancelled = Reservation(**{**vars(one), "status": ReservationStatus.CANCELLED})
    assert status_at(cancelled, hour(1)) == ReservationStatus.CANCELLED
