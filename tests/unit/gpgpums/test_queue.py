# SPDX-License-Identifier: Apache-2.0
"""The next request of the queue: order, fairness and backfill, for any pool and any sequence of events."""

from __future__ import annotations

import datetime
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gsaas.gpgpums import queue
from gsaas.gpgpums.policies.least_load_fit import LeastLoadFit
from gsaas.gpgpums.pool import Pool
from gsaas.gpgpums.queue import QueuedRequest
from gsaas.objects.gpu import Gpu
from gsaas.objects.placement import Placement
from gsaas.objects.request import Request

POLICY = LeastLoadFit()
BEGINNING = datetime.datetime(2026, 1, 1)

requests = st.one_of(
    st.builds(Request, st.integers(1, 3)),
    st.builds(Request, st.integers(1, 3), st.just("shared"), st.sampled_from([1000, 3000, 7000])),
)


def queued(
    number: int, request: Request, priority: int = 0, project: str = "blue"
) -> QueuedRequest:
    at = BEGINNING + datetime.timedelta(seconds=number)
    return QueuedRequest(f"lease-{number}", request, POLICY, project, priority, at)


class QueueMachine(RuleBasedStateMachine):
    """Leases join the queue, are served and end, as `gsaas.gpgpums.claims` does it."""

    backfill = False

    @initialize(sizes=st.lists(st.sampled_from([2000, 4000, 8000]), min_size=1, max_size=4))
    def make_pool(self, sizes):
        self.pool = Pool(
            Gpu(f"GPU-{index}", f"host{index % 2}", index, size) for index, size in enumerate(sizes)
        )
        self.idle_pool = Pool(self.pool)
        self.joined = 0
        self.waiting: dict[str, QueuedRequest] = {}
        self.served: dict[str, tuple[QueuedRequest, Placement]] = {}
        self.ended: set[str] = set()

    @rule(request=requests, priority=st.integers(-1, 1))
    def join(self, request, priority):
        if self.idle_pool.place(request, POLICY) is None:
            return  # refused at once: it can never fit
        self.joined += 1
        new = queued(self.joined, request, priority)
        self.waiting[new.lease_id] = new
        self.advance()

    @precondition(lambda self: self.served)
    @rule(data=st.data())
    def end(self, data):
        lease_id = data.draw(st.sampled_from(sorted(self.served)))
        self.release(lease_id)
        self.advance()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data):
        lease_id = data.draw(st.sampled_from(sorted(self.waiting)))
        del self.waiting[lease_id]
        self.ended.add(lease_id)
        self.advance()

    def release(self, lease_id: str) -> None:
        _, placement = self.served.pop(lease_id)
        for uuid, size in placement.memory_by_gpu().items():
            self.pool.put(self.pool.get(uuid).release(size, generation=0))
        self.ended.add(lease_id)

    def advance(self) -> None:
        while found := self.choose_next():
            one, placement = found
            self.check_fairness(one, placement)
            del self.waiting[one.lease_id]
            for uuid, size in placement.memory_by_gpu().items():
                gpu = self.pool.get(uuid)
                exclusive = one.request.exclusive
                self.pool.put(gpu.claim(size, exclusive=exclusive, generation=0))
            self.served[one.lease_id] = found

    def choose_next(self) -> tuple[QueuedRequest, Placement] | None:
        before = sorted(self.pool, key=lambda gpu: gpu.uuid)
        found = queue.choose_next(self.pool, self.waiting.values(), backfill=self.backfill)
        assert sorted(self.pool, key=lambda gpu: gpu.uuid) == before
        return found

    def ahead_of(self, one: QueuedRequest) -> list[QueuedRequest]:
        return [other for other in self.waiting.values() if other.sort_key < one.sort_key]

    def check_fairness(self, one: QueuedRequest, placement: Placement) -> None:
        assert not self.ahead_of(one), "a request was overtaken"

    @invariant()
    def no_request_is_lost_and_none_counts_twice(self):
        groups = [set(self.waiting), set(self.served), self.ended]
        assert sum(map(len, groups)) == len(set().union(*groups)) == self.joined

    @invariant()
    def the_head_waits_only_for_what_is_not_free(self):
        if self.waiting:
            head = min(self.waiting.values(), key=lambda one: one.sort_key)
            assert self.pool.place(head.request, POLICY) is None

    def teardown(self):
        """Every request is served in the end, if every lease ends."""
        if not hasattr(self, "pool"):
            return
        while self.served:
            self.release(min(self.served))
            self.advance()
        assert not self.waiting


class QueueMachineWithBackfill(QueueMachine):
    backfill = True

    def check_fairness(self, one, placement):
        for other in self.ahead_of(one):
            for share in placement.shares:
                gpu = self.idle_pool.get(share.gpu_uuid)
                assert not other.request.fits(gpu), "a request may be delayed"


TestQueue = QueueMachine.TestCase
TestQueueWithBackfill = QueueMachineWithBackfill.TestCase
TestQueue.settings = TestQueueWithBackfill.settings = settings(stateful_step_count=25)


def test_a_request_that_waits_for_its_quota_delays_no_other_and_reserves_nothing():
    pool = Pool([Gpu("GPU-0", "a", 0, 1000)])
    blue, red = queued(1, Request(1)), queued(2, Request(1), project="red")

    for backfill in (False, True):
        found = queue.choose_next(
            pool, [blue, red], backfill=backfill, allows=lambda one, _: one.project_id == "red"
        )
        assert found[0] is red


KINDS = (("A100", (8, 0)), ("H200", (9, 0)), ("L4", (8, 9)))


def mixed_pool(rng: random.Random, gpus: int = 12) -> Pool:
    found = []
    for number in range(gpus):
        model, capability = KINDS[number % 3]
        memory = rng.choice([1000, 2000]) if model == "L4" else 1000
        used = rng.choice([0, 0, 500, memory])
        found.append(
            Gpu(
                f"GPU-{number:02}",
                f"host{number % 4}",
                number,
                memory,
                used,
                model=model,
                compute_capability=capability,
            )
        )
    return Pool(found, {gpu.host for gpu in found})


def any_request(rng: random.Random) -> Request:
    memory = rng.choice([None, 400, 900, 1500])
    return Request(
        rng.choice([1, 1, 2, 4]),
        "shared" if memory else "exclusive",
        memory,
        gpu_model=rng.choice([None, "A100", "H200", "L4"]),
        compute_capability=rng.choice([None, (8, 9)]),
        host=rng.choice([None, None, None, "host1"]),
    )


def simplest_choice(pool: Pool, waiting: list[QueuedRequest]) -> str | None:
    """The rule as it is written: whatever an earlier request could use if it were idle is out of the question."""
    for one in waiting:
        barred = [other.request for other in waiting if other.sort_key < one.sort_key]
        free = Pool(
            [
                gpu
                for gpu in pool
                if not any(r.fits(gpu.with_(used_mb=0, exclusive=False)) for r in barred)
            ],
            pool.compute_hosts,
        )
        if free.place(one.request, POLICY) is not None:
            return one.lease_id
    return None


@pytest.mark.parametrize("seed", range(60))
def test_backfill_on_gpus_of_several_kinds_chooses_by_the_rule(seed: int):
    rng = random.Random(seed)  # noqa: S311
    pool = mixed_pool(rng)
    waiting = [queued(number, any_request(rng)) for number in range(6)]
    before = sorted(pool, key=lambda gpu: gpu.uuid)

    found = queue.choose_next(pool, waiting, backfill=True)

    assert (found and found[0].lease_id) == simplest_choice(pool, waiting)
    assert sorted(pool, key=lambda gpu: gpu.uuid) == before
    assert not pool.barred_traits


def test_a_request_that_waits_for_one_kind_bars_no_device_of_another():
    pool = Pool([Gpu("GPU-0", "a", 0, 1000, used_mb=1), Gpu("CPU-0", "b", 0, 1000)])
    waiting = [queued(1, Request(1)), queued(2, Request(1, kind="cpu"))]
    found, placement = queue.choose_next(pool, waiting, backfill=True)
    assert (found.lease_id, list(placement.memory_by_gpu())) == ("lease-2", ["CPU-0"])


class WatchedPool(Pool):
    """Counts the GPUs that change."""

    puts = 0

    def put(self, gpu):
        self.puts += 1
        super().put(gpu)


def test_backfill_past_a_request_for_one_model_costs_the_same_on_any_number_of_gpus():
    for count in (2, 500):
        pool = WatchedPool(
            [Gpu(f"a{n}", "a", n, 1000, 1000, model="A100") for n in range(count)]
            + [Gpu(f"b{n}", "b", n, 1000, 500, model="L4") for n in range(count)]
        )
        a100 = queued(1, Request(1, gpu_model="A100"))
        whole, part = queued(2, Request(1)), queued(3, Request(1, "shared", 400, gpu_model="L4"))
        assert queue.choose_next(pool, [a100, part], backfill=True)[0] is part
        assert queue.choose_next(pool, [a100, whole, part], backfill=True) is None
        assert pool.puts == 0


class CountingPool(Pool):
    """Counts how many requests are tried."""

    tried = 0

    def place(self, request, policy):
        self.tried += 1
        return super().place(request, policy)


@pytest.mark.parametrize(("backfill", "reserves", "tried"), [(False, False, 2), (True, True, 3)])
def test_of_many_equal_requests_that_do_not_fit_one_is_tried(backfill, reserves, tried):
    """With reservations, the first is tried once more, because the pool has changed."""
    pool = CountingPool([Gpu("GPU-0", "a", 0, 1000, used_mb=500), Gpu("GPU-1", "a", 1, 100)])
    large = [queued(number, Request(1, "shared", 800)) for number in range(4096)]
    small = queued(5000, Request(1, "shared", 100))

    found = queue.choose_next(
        pool, [*large, small], backfill=backfill, bars_others=lambda _: reserves
    )

    assert found[0] is small
    assert pool.tried == tried


def test_a_quota_that_depends_on_the_gpu_is_asked_again_when_it_is_known():
    pool = Pool([Gpu("GPU-0", "a", 0, 1000)])
    asked = []

    def allows(one, placement):
        asked.append(placement)
        return placement is None

    assert queue.choose_next(pool, [queued(1, Request(1))], backfill=False, allows=allows) is None
    assert [type(one) for one in asked] == [type(None), Placement]


@pytest.mark.parametrize(
    ("position", "active", "durations", "seconds"),
    [
        (1, 4, [10, 20, 30], 5),
        (8, 4, [10, 20, 30], 40),
        (1, 1, [7], 7),
        (1, 4, [], None),
        (1, 0, [10], None),
    ],
)
def test_an_estimate_follows_from_how_often_a_lease_ends(position, active, durations, seconds):
    assert queue.estimate(position, active, durations) == seconds
