# SPDX-License-Identifier: Apache-2.0
"""What the pool places: everything or nothing, never more than is free, and only where locality allows it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas.gpgpums import policies
from gsaas.gpgpums.equal_order import EqualOrder
from gsaas.gpgpums.policies.base import Policy
from gsaas.gpgpums.pool import Pool, Totals
from gsaas.objects.gpu import Gpu, WithheldReason
from gsaas.objects.placement import Placement, Refusal, Share
from gsaas.objects.request import Request
from tests.unit.gpgpums import reference, strategies

FIRST_FIT = policies.load("first-fit")
ANY_POLICY = pytest.mark.parametrize(
    "policy", [pytest.param(policies.load(name), id=name) for name in policies.names()]
)


class FixedOrder(Policy):
    """Yields the GPUs that it was made with, whether they fit or not."""

    name = "fixed"

    def __init__(self, *gpus: Gpu) -> None:
        self.gpus = gpus

    def order(self, *_):
        yield from self.gpus


def gpu(uuid: str, **details) -> Gpu:
    """`gpu("a0")` is device 0 of host a, idle, 1000 MiB unless *details* say otherwise."""
    return Gpu(uuid, uuid[0], int(uuid[1:]), **{"memory_mb": 1000, **details})


def chosen(answer: Placement | Refusal) -> list[str]:
    assert isinstance(answer, Placement), answer
    return [share.gpu_uuid for share in answer.shares]


def test_cgpus_of_one_lease_may_share_a_gpu():
    placement = Pool([gpu("a0")]).propose(Request(3, "shared", 300), FIRST_FIT)

    assert placement == Placement((Share("a0", 300),) * 3)


def test_what_one_daemon_serves_is_on_one_host_and_each_on_a_gpu_of_its_own():
    gpus = [gpu("a0"), gpu("b0", used_mb=700), gpu("b1")]
    placement = Pool(gpus).propose(Request(2, "shared", 300, one_daemon=True), FIRST_FIT)
    assert placement == Placement((Share("b0", 300), Share("b1", 300)))


def test_a_daemon_serves_no_second_mig_instance():
    """CUDA shows a process one of them."""
    gpus = [Gpu(f"MIG-{n}", "a", n, 1000) for n in range(2)] + [gpu("b0"), gpu("b1")]
    assert chosen(Pool(gpus).propose(Request(2, one_daemon=True), FIRST_FIT)) == ["b0", "b1"]
    assert chosen(Pool(gpus).propose(Request(2), FIRST_FIT)) == ["MIG-0", "MIG-1"]


def test_an_exclusive_cgpu_is_a_whole_gpu():
    placement = Pool([gpu("a0", used_mb=1), gpu("a1", memory_mb=777)]).propose(
        Request(1), FIRST_FIT
    )

    assert placement == Placement((Share("a1", 777),))


@pytest.mark.parametrize("reason", WithheldReason)
def test_a_withheld_gpu_is_passed_over(reason):
    pool = Pool([gpu("a0", withheld=reason), gpu("a1")])

    assert chosen(pool.propose(Request(1), FIRST_FIT)) == ["a1"]


def test_local_wants_one_compute_host_and_says_which():
    pool = Pool([gpu("a0"), gpu("a1"), gpu("b0"), gpu("c0"), gpu("c1")], ["b", "c"])

    assert pool.propose(Request(2, locality="local"), FIRST_FIT) == Placement(
        (Share("c0", 1000), Share("c1", 1000)), host="c"
    )


def test_remote_says_where_the_vm_must_not_run():
    pool = Pool([gpu("a0"), gpu("b0")], ["a", "b", "c"])

    assert pool.propose(Request(2, locality="remote"), FIRST_FIT) == Placement(
        (Share("a0", 1000), Share("b0", 1000)), avoid=("a", "b")
    )


def test_remote_leaves_one_compute_host_without_its_gpus_if_that_can_be():
    """First fit alone would take a0 and b0, and no compute host would be left for the VM."""
    pool = Pool([gpu("a0"), gpu("b0"), gpu("b1")], ["a", "b"])

    placement = pool.propose(Request(2, locality="remote"), FIRST_FIT)

    assert (chosen(placement), placement.avoid) == (["b0", "b1"], ("b",))


def test_remote_excludes_the_compute_host_that_the_policy_chose_last():
    sizes = {"a0": 4000, "a1": 1000, "b0": 3000, "b1": 2000}
    pool = Pool([gpu(uuid, memory_mb=size) for uuid, size in sizes.items()], ["a", "b"])

    placement = pool.propose(Request(2, locality="remote"), policies.load("least-load-fit"))

    assert (chosen(placement), placement.avoid) == (["a0", "a1"], ("a",))


def test_a_policy_cannot_over_commit_whatever_it_yields():
    full, small, idle = gpu("a0", used_mb=1000), gpu("b0", used_mb=900), gpu("c0")
    exclusive = gpu("d0", used_mb=1000, exclusive=True)
    off = gpu("e0", withheld=WithheldReason.DISABLED)
    unknown = gpu("f0")
    made_up = gpu("a0", memory_mb=999999)
    policy = FixedOrder(full, small, exclusive, off, unknown, made_up, idle, idle)
    pool = Pool([full, small, idle, exclusive, off])

    assert chosen(pool.propose(Request(2, "shared", 500), policy)) == ["c0", "c0"]
    assert isinstance(pool.propose(Request(3, "shared", 500), policy), Refusal)
    assert isinstance(pool.propose(Request(2), policy), Refusal)


def test_a_policy_cannot_give_a_device_of_another_kind_whatever_it_yields():
    cuda, cpu = Gpu("GPU-1", "a", 0, 1000), Gpu("CPU-1", "b", 0, 1000)
    pool = Pool([cuda, cpu])
    for request in (Request(1), Request(1, "shared", 100)):
        assert chosen(pool.propose(request, FixedOrder(cpu, cuda))) == ["GPU-1"]
        only_cpu = request.with_(kind="cpu")
        assert chosen(pool.propose(only_cpu, FixedOrder(cuda, cpu))) == ["CPU-1"]


def test_a_policy_that_wants_none_of_the_gpus_that_fit_is_named():
    answer = Pool([gpu("a0"), gpu("b0")]).propose(Request(1), FixedOrder())

    assert answer == Refusal(False, "the policy fixed wants none of the 2 GPUs that would fit")


def test_a_policy_that_breaks_half_way_leaves_the_pool_as_it_was():
    class Breaks(Policy):
        name = "breaks"
        calls = 0

        def order(self, candidates, _):
            self.calls += 1
            if self.calls == 2:
                raise RuntimeError("broken")
            return candidates

    pool = Pool([gpu("a0"), gpu("b0")])
    with pytest.raises(RuntimeError, match="broken"):
        pool.propose(Request(2), Breaks())

    assert list(pool) == [gpu("a0"), gpu("b0")]
    assert chosen(pool.propose(Request(2), FIRST_FIT)) == ["a0", "b0"]


def test_a_gpu_that_changes_place_changes_its_position_in_the_order():
    pool = Pool([gpu("a0"), gpu("b0")])
    assert chosen(pool.propose(Request(1), FIRST_FIT)) == ["a0"]

    pool.put(Gpu("a0", "z", 0, memory_mb=1000))

    assert chosen(pool.propose(Request(2), FIRST_FIT)) == ["b0", "a0"]
    assert (pool.on_host("a"), len(pool.on_host("z"))) == ([], 1)


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def claims_of(
    pools: list[Pool], number: int, request: Request, policy: Policy, first: int = 1
) -> list[Gpu]:
    """Let *pools*, each of which sees what the others claim, claim in turns; return the GPU of each claim."""
    claimed = []
    for generation in range(first, first + number):
        pool = pools[generation % len(pools)]
        [share] = pool.propose(request, policy).shares
        after = pool[share.gpu_uuid].claim(
            share.memory_mb, exclusive=request.exclusive, generation=generation
        )
        for each in pools:
            each.put(after)
        claimed.append(after)
    return claimed


@pytest.mark.parametrize("name", ["least-load-fit", "best-fit", "energy", "fewer-jobs-gpu"])
@pytest.mark.parametrize("request_", [Request(1), Request(1, "shared", 600)])
def test_processes_that_begin_at_different_gpus_fill_one_host_after_the_other(name, request_):
    gpus = [gpu(f"{host}{index}") for host in LETTERS for index in range(8)]
    starts = iter([8, 96, 160])  # b0, m0 and u0
    pools = [Pool(gpus, equal_order=EqualOrder(200, lambda _: next(starts, 0))) for _ in range(3)]

    claimed = claims_of(pools, 48, request_, policies.load(name))

    assert {gpu.host for gpu in claimed} == {"b", "c", "m", "n", "u", "v"}


@pytest.mark.parametrize("begins_elsewhere", [False, True])
def test_four_processes_use_few_hosts_also_if_they_begin_elsewhere_each_time(begins_elsewhere):
    """125 hosts are the least."""
    gpus = [Gpu(f"{n:05}", f"{n // 8:04}", n % 8, 1000) for n in range(8000)]
    choices = random.Random(7)  # noqa: S311 - the same course in every run
    pools = [Pool(gpus, equal_order=EqualOrder(1024, choices.randrange)) for _ in range(4)]
    claimed: list[Gpu] = []
    for number in range(1000):
        claimed += claims_of(pools, 1, Request(1), policies.load("best-fit"), number + 1)
        if begins_elsewhere:
            for pool in pools:
                pool.begin_elsewhere([claimed[-1].uuid])

    assert len({gpu.host for gpu in claimed}) <= 140


def test_one_gpu_that_all_processes_choose_first_does_not_have_them_meet_at_the_next():
    gpus = [gpu("a0", used_mb=400), *(gpu(f"b{index}") for index in range(100))]
    pools = [
        Pool(gpus, equal_order=EqualOrder(1024, lambda number, start=start: start % number))
        for start in (30, 60)
    ]
    policy, request = policies.load("best-fit"), Request(2, "shared", 600)

    assert [chosen(pool.propose(request, policy)) for pool in pools] == [
        ["a0", "b30"],
        ["a0", "b60"],
    ]


def test_a_process_claims_again_what_was_returned_where_it_begins():
    gpus = [gpu(f"{host}{index}") for host in "abc" for index in range(8)]
    pool = Pool(gpus, equal_order=EqualOrder(20, lambda _: 10))
    policy = policies.load("least-load-fit")
    before = pool["b2"]
    claimed = claims_of([pool], 20, Request(1), policy)
    assert [gpu.uuid for gpu in claimed[:3]] == ["b2", "b3", "b4"]
    pool.put(before.with_(generation=99))

    assert chosen(pool.propose(Request(1), policy)) == ["b2"]


@pytest.mark.parametrize("name", ["best-fit", "performance", "fewer-jobs-node"])
def test_a_process_begins_elsewhere_when_it_has_lost_the_gpu_that_it_chose(name):
    starts = iter([3, 5])
    gpus = [gpu(f"{host}0") for host in "abcdefgh"]
    pool = Pool(
        [*gpus, gpu("z0", used_mb=1000)],
        equal_order=EqualOrder(100, lambda number: next(starts) if number > 1 else 0),
    )
    policy = policies.load(name)

    assert [chosen(pool.propose(Request(1), policy)) for _ in range(2)] == [["d0"]] * 2
    pool.begin_elsewhere(["z0", "unknown"])
    assert chosen(pool.propose(Request(1), policy)) == ["d0"]
    pool.begin_elsewhere(["d0"])
    assert [chosen(pool.propose(Request(1), policy)) for _ in range(2)] == [["f0"]] * 2


def test_a_process_begins_elsewhere_when_a_gpu_is_added():
    starts = iter([3, 1])
    pool = Pool(
        [gpu(f"a{index}") for index in range(8)],
        equal_order=EqualOrder(8, lambda _: next(starts)),
    )
    policy = policies.load("best-fit")
    assert chosen(pool.propose(Request(1), policy)) == ["a3"]
    pool.put(gpu("a8"))
    pool.begin_elsewhere(["a8"])  # it has no place in any order yet
    assert chosen(pool.propose(Request(1), policy)) == ["a1"]


def test_totals_count_everything_and_what_is_offered():
    pool = Pool([gpu("a0", used_mb=10), gpu("b0", withheld=WithheldReason.DISABLED)])

    assert pool.totals() == Totals(gpus=2, offered=1, memory_mb=2000, used_mb=10)


@ANY_POLICY
@given(
    strategies.clouds(max_size=9),
    strategies.compute_hosts,
    strategies.requests(),
    strategies.mixes(),
)
def test_the_pool_chooses_as_the_plain_rules_do(policy, gpus, compute_hosts, request, mix):
    answer = Pool(gpus, compute_hosts, mix).propose(request, policy)

    expected = reference.choose(request, gpus, compute_hosts, reference.KEYS[policy.name], mix)
    assert (chosen(answer) if isinstance(answer, Placement) else None) == expected


@ANY_POLICY
@given(strategies.clouds(), strategies.compute_hosts, strategies.requests())
def test_a_request_is_refused_only_if_no_assignment_at_all_would_do(
    policy, gpus, compute_hosts, request
):
    answer = Pool(gpus, compute_hosts).propose(request, policy)

    assert isinstance(answer, Placement) == reference.possible(request, gpus, compute_hosts)


@pytest.mark.slow
@ANY_POLICY
@given(strategies.clouds(max_size=9), strategies.compute_hosts, strategies.requests())
def test_what_is_granted_can_be_claimed_whole_and_is_what_was_asked_for(
    policy, gpus, compute_hosts, request
):
    answer = Pool(gpus, compute_hosts).propose(request, policy)
    if isinstance(answer, Refusal):
        return

    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    for uuid, size in answer.memory_by_gpu().items():  # raises where it would over-commit
        by_uuid[uuid].claim(size, exclusive=request.exclusive, generation=1)
        assert by_uuid[uuid].withheld is None
    hosts = [by_uuid[share.gpu_uuid].host for share in answer.shares]
    assert len(hosts) == request.count
    assert all(reference.is_of_kind(by_uuid[share.gpu_uuid], request) for share in answer.shares)
    assert request.host is None or set(hosts) == {request.host}
    assert len(set(hosts)) == {"one": 1, "spread": request.count}.get(
        request.hosts, len(set(hosts))
    )
    assert reference.is_in_place(request, set(hosts), compute_hosts)
    if request.consumer_host is None:  # the VM's host is yet to be chosen
        assert answer.host == (hosts[0] if request.locality == "local" else None)
        assert set(answer.avoid) == (set(hosts) if request.locality == "remote" else set())


@given(strategies.clouds(), strategies.compute_hosts, strategies.requests())
def test_a_request_is_impossible_only_if_an_idle_cloud_would_refuse_it(
    gpus, compute_hosts, request
):
    idle = [gpu.with_(used_mb=0, exclusive=False, withheld=None) for gpu in gpus]

    answer = Pool(gpus, compute_hosts).propose(request, FIRST_FIT)

    if isinstance(answer, Refusal):
        assert answer.impossible != reference.possible(request, idle, compute_hosts)


@given(strategies.clouds(), strategies.compute_hosts, strategies.requests())
def test_the_nearest_request_fits_and_nothing_larger_does(gpus, compute_hosts, request):
    pool = Pool(gpus, compute_hosts)
    answer = pool.propose(request, FIRST_FIT)
    if isinstance(answer, Placement):
        return

    def fits(**changes: int) -> bool:
        return reference.possible(request.with_(**changes), gpus, compute_hosts)

    fitting_counts = [count for count in range(1, request.count) if fits(count=count)]
    sizes = range(1, request.memory_mb or 1)
    fitting_sizes = [size for size in sizes if fits(memory_mb=size)]
    if fitting_counts:
        assert (answer.nearest, answer.relaxed) == (
            request.with_(count=max(fitting_counts)),
            None,
        )
    elif fitting_sizes:
        assert (answer.nearest, answer.relaxed) == (
            request.with_(memory_mb=max(fitting_sizes)),
            None,
        )
    elif answer.nearest is not None:
        assert answer.relaxed in {"locality": request.locality, **request.requirements()}
        given_up = {answer.relaxed: "any" if answer.relaxed in ("hosts", "locality") else None}
        assert answer.nearest == request.with_(
            count=answer.nearest.count, memory_mb=answer.nearest.memory_mb, **given_up
        )
        assert reference.possible(answer.nearest, gpus, compute_hosts)
    else:
        for word in request.requirements().keys() - {"kind"}:  # no program can give that up
            given_up = {word: "any" if word == "hosts" else None}
            assert not fits(**given_up, count=1)  # smaller is fewer or less, not both
            assert request.memory_mb is None or not fits(**given_up, memory_mb=1)


@given(
    strategies.clouds(max_size=9),
    strategies.compute_hosts,
    st.lists(strategies.requests(), max_size=4),
)
@ANY_POLICY
def test_asking_changes_nothing(policy, gpus, compute_hosts, requests):
    pool = Pool(gpus, compute_hosts)
    first = [pool.propose(request, policy) for request in requests]

    assert [pool.propose(request, policy) for request in reversed(requests)] == first[::-1]
    assert list(pool) == gpus
