"""Who goes next: order, fairness and what backfill may do, for any pool and any course of events."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gsaas.gpgpums import queue
from gsaas.gpgpums.policies.least_load_fit import LeastLoadFit
from gsaas.gpgpums.pool import Pool
from gsaas.gpgpums.queue import Waiting
from gsaas.objects.gpu import Gpu
from gsaas.objects.placement import Placement
from gsaas.objects.request import Request

POLICY = LeastLoadFit()
BEGINNING = datetime.datetime(2026, 1, 1)

requests = st.one_of(
    st.builds(Request, st.integers(1, 3)),
    st.builds(Request, st.integers(1, 3), st.just("shared"), st.sampled_from([1000, 3000, 7000])),
)


def wait(number: int, request: Request, priority: int = 0, project: str = "blue") -> Waiting:
    at = BEGINNING + datetime.timedelta(seconds=number)
    return Waiting(f"lease-{number}", request, POLICY, project, priority, at)


class Cloud(RuleBasedStateMachine):
    """Leases come, wait, are served and go, as `gsaas.gpgpums.claims` has it."""

    backfill = False

    @initialize(sizes=st.lists(st.sampled_from([2000, 4000, 8000]), min_size=1, max_size=4))
    def furnish(self, sizes):
        self.pool = Pool(
            Gpu(f"GPU-{index}", f"host{index % 2}", index, size) for index, size in enumerate(sizes)
        )
        self.empty = Pool(self.pool)
        self.asked = 0
        self.waiting: dict[str, Waiting] = {}
        self.held: dict[str, tuple[Waiting, Placement]] = {}
        self.gone: set[str] = set()

    @rule(request=requests, priority=st.integers(-1, 1))
    def ask(self, request, priority):
        if self.empty.place(request, POLICY) is None:
            return  # refused at once: it can never fit
        self.asked += 1
        new = wait(self.asked, request, priority)
        self.waiting[new.lease_id] = new
        self.advance()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data):
        lease_id = data.draw(st.sampled_from(sorted(self.held)))
        self.release(lease_id)
        self.advance()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data):
        lease_id = data.draw(st.sampled_from(sorted(self.waiting)))
        del self.waiting[lease_id]
        self.gone.add(lease_id)
        self.advance()

    def release(self, lease_id: str) -> None:
        _, placement = self.held.pop(lease_id)
        for uuid, size in placement.memory_by_gpu().items():
            self.pool.put(self.pool.get(uuid).release(size, generation=0))
        self.gone.add(lease_id)

    def advance(self) -> None:
        while turn := self.next_turn():
            one, placement = turn
            self.check_fairness(one, placement)
            del self.waiting[one.lease_id]
            for uuid, size in placement.memory_by_gpu().items():
                gpu = self.pool.get(uuid)
                exclusive = one.request.exclusive
                self.pool.put(gpu.claim(size, exclusive=exclusive, generation=0))
            self.held[one.lease_id] = turn

    def next_turn(self) -> tuple[Waiting, Placement] | None:
        before = sorted(self.pool, key=lambda gpu: gpu.uuid)
        turn = queue.next_turn(self.pool, self.waiting.values(), backfill=self.backfill)
        assert sorted(self.pool, key=lambda gpu: gpu.uuid) == before
        return turn

    def ahead_of(self, one: Waiting) -> list[Waiting]:
        return [other for other in self.waiting.values() if other.turn < one.turn]

    def check_fairness(self, one: Waiting, placement: Placement) -> None:
        assert not self.ahead_of(one), "somebody was overtaken"

    @invariant()
    def nobody_is_lost_and_nobody_counts_twice(self):
        groups = [set(self.waiting), set(self.held), self.gone]
        assert sum(map(len, groups)) == len(set().union(*groups)) == self.asked

    @invariant()
    def the_head_waits_only_for_what_is_not_there(self):
        if self.waiting:
            head = min(self.waiting.values(), key=lambda one: one.turn)
            assert self.pool.place(head.request, POLICY) is None

    def teardown(self):
        """Whoever waits is served in the end, if everybody gives back what he has."""
        if not hasattr(self, "pool"):
            return
        while self.held:
            self.release(min(self.held))
            self.advance()
        assert not self.waiting


class CloudWithBackfill(Cloud):
    backfill = True

    def check_fairness(self, one, placement):
        for other in self.ahead_of(one):
            for share in placement.shares:
                idle = self.empty.get(share.gpu_uuid)
                assert not other.request.fits(idle), "somebody may be delayed"


TestQueue = Cloud.TestCase
TestQueueWithBackfill = CloudWithBackfill.TestCase
TestQueue.settings = TestQueueWithBackfill.settings = settings(stateful_step_count=25)


def test_who_waits_for_his_quota_holds_nobody_up_and_reserves_nothing():
    pool = Pool([Gpu("GPU-0", "a", 0, 1000)])
    blue, red = wait(1, Request(1)), wait(2, Request(1), project="red")

    for backfill in (False, True):
        turn = queue.next_turn(
            pool, [blue, red], backfill=backfill, allows=lambda one, _: one.project_id == "red"
        )
        assert turn[0] is red


def test_a_quota_that_depends_on_the_gpu_is_asked_again_when_it_is_known():
    pool = Pool([Gpu("GPU-0", "a", 0, 1000)])
    asked = []

    def allows(one, placement):
        asked.append(placement)
        return placement is None

    assert queue.next_turn(pool, [wait(1, Request(1))], backfill=False, allows=allows) is None
    assert [type(one) for one in asked] == [type(None), Placement]


@pytest.mark.parametrize(
    ("position", "holding", "held", "seconds"),
    [
        (1, 4, [10, 20, 30], 5),
        (8, 4, [10, 20, 30], 40),
        (1, 1, [7], 7),
        (1, 4, [], None),
        (1, 0, [10], None),
    ],
)
def test_an_estimate_is_how_often_a_lease_ends(position, holding, held, seconds):
    assert queue.estimate(position, holding, held) == seconds
