# SPDX-License-Identifier: Apache-2.0
"""The sentences that a refused tenant reads."""

from __future__ import annotations

import pytest
from hypothesis import given

from gsaas.gpgpums import policies
from gsaas.gpgpums.pool import Pool
from gsaas.objects.gpu import Gpu, WithheldReason
from gsaas.objects.placement import Refusal
from gsaas.objects.request import Request
from tests.unit.gpgpums import strategies

FIRST_FIT = policies.load("first-fit")


def gpu(host: str, index: int, **details) -> Gpu:
    return Gpu(f"{host}{index}", host, index, **{"memory_mb": 16384, **details})


def busy(host: str, index: int, free_mb: int) -> Gpu:
    return gpu(host, index, used_mb=16384 - free_mb)


def exclusive(host: str, index: int) -> Gpu:
    return gpu(host, index, used_mb=16384, exclusive=True)


MIXED = [
    busy("a", 0, 1024),
    busy("a", 1, 2048),
    busy("a", 2, 3000),
    *(exclusive("b", i) for i in range(4)),
    busy("c", 0, 8192),
]

BUSY = {
    "3 of 8 GPUs lack 4096 MiB free, 4 are held exclusively, 1 would fit, but has room for "
    "only 2 of the 3 cGPUs; the largest request that would fit now is 2 cGPUs of 4096 MiB": (
        MIXED,
        Request(3, "shared", 4096),
    ),
    "4 of 8 GPUs lack 16384 MiB free, 4 are held exclusively; "
    "the largest request that would fit now is 1 cGPU of 8192 MiB": (
        MIXED,
        Request(1, "shared", 16384),
    ),
    "4 of 8 GPUs are in use, 4 are held exclusively; nothing smaller would fit now either": (
        MIXED,
        Request(1),
    ),
    "1 of 3 GPUs is in use, 2 are free, and the request is for 3; "
    "the largest request that would fit now is 2 whole GPUs": (
        [gpu("a", 0, used_mb=1), gpu("a", 1), gpu("b", 0)],
        Request(3),
    ),
    "1 of 4 GPUs lacks 9000 MiB free, 1 is on a host whose monitor is silent, "
    "1 is on a disabled host, 1 is disabled; "
    "the largest request that would fit now is 1 cGPU of 8192 MiB": (
        [
            busy("a", 0, 8192),
            gpu("b", 0, withheld=WithheldReason.HOST_SILENT),
            gpu("c", 0, withheld=WithheldReason.HOST_DISABLED),
            gpu("d", 0, withheld=WithheldReason.DISABLED),
        ],
        Request(1, "shared", 9000),
    ),
    "1 of 4 GPUs is in use, 1 is on a host that runs no VMs, 2 would fit, "
    "but no compute host has room for more than 1; "
    "the largest request that would fit now is 1 whole GPU": (
        [gpu("a", 0, used_mb=1), gpu("a", 1), gpu("b", 0), gpu("x", 0)],
        Request(2, locality="local"),
    ),
    "1 of 3 GPUs is in use, 2 would fit, "
    "but with one compute host left for the VM there is room for 1; "
    "the largest request that would fit now is 1 whole GPU": (
        [gpu("a", 0), gpu("b", 0), gpu("b", 1, used_mb=1)],
        Request(2, locality="remote"),
    ),
}

ONE_DAEMON = "one daemon serves all cGPUs of a lease here, so they are on one host, each on a GPU of its own: "
ALLOWED = "with several daemons, which your operator may allow ([remoting]several_daemons)"
BUSY |= {
    "1 of 3 GPUs lacks 2048 MiB free, 2 would fit, but no host has room for more than 1; the largest request that "
    f"would fit now is 1 cGPU of 2048 MiB; {ONE_DAEMON}2 cGPUs of 2048 MiB would fit now {ALLOWED}": (
        [gpu("a", 0), busy("a", 1, 1024), gpu("b", 0)],
        Request(2, "shared", 2048, one_daemon=True),
    ),
}

IMPOSSIBLE = {
    "no GPU host has reported any GPU yet": ([], Request(1)),
    "20000 MiB is more than the largest GPU of this cloud has: 16384 MiB": (
        MIXED,
        Request(1, "shared", 20000),
    ),
    "9 whole GPUs cannot be had: this cloud has 8 GPUs": (MIXED, Request(9)),
    "9 cGPUs of 9000 MiB cannot be had: the 8 GPUs of this cloud have room for 8 when nobody else uses them": (
        MIXED,
        Request(9, "shared", 9000),
    ),
    "5 whole GPUs on one host cannot be had: no compute host has room for more than 4": (
        MIXED,
        Request(5, locality="local"),
    ),
    "local asks for a compute host with GPUs, and there is none": (
        [gpu("x", 0)],
        Request(1, locality="local"),
    ),
    "2 whole GPUs cannot be had: beside one compute host there is room for 1": (
        [gpu("a", 0), gpu("b", 0)],
        Request(2, locality="remote"),
    ),
}

IMPOSSIBLE |= {
    "2 cGPUs of 2048 MiB on one host cannot be had: no host has room for more than 1; the largest request that would "
    f"fit now is 1 cGPU of 2048 MiB; {ONE_DAEMON}2 cGPUs of 2048 MiB would fit now {ALLOWED}": (
        [gpu("a", 0), gpu("b", 0)],
        Request(2, "shared", 2048, one_daemon=True),
    ),
    f"3 whole GPUs on one host cannot be had: no host has room for more than 2; {ONE_DAEMON}3 whole GPUs could be had "
    f"{ALLOWED}": (
        [gpu(host, index, used_mb=1) for host in "ab" for index in range(2)],
        Request(3, one_daemon=True),
    ),
    "5 whole GPUs on one host cannot be had: no host has room for more than 1": (
        [gpu("a", 0), Gpu("MIG-0", "b", 0, 1), Gpu("MIG-1", "b", 1, 1)],
        Request(5, one_daemon=True),
    ),
}

COMPUTE_HOSTS = ["a", "b"]
OF_BOTH_KINDS = [gpu("a", 0, used_mb=1), gpu("CPU-", 0), gpu("CPU-", 1)]


@pytest.mark.parametrize(("sentence", "case"), BUSY.items())
def test_a_busy_cloud_says_what_each_filter_dropped_and_what_would_fit(sentence, case):
    gpus, request = case

    refusal = Pool(gpus, COMPUTE_HOSTS).propose(request, FIRST_FIT)

    assert (refusal.reason, refusal.impossible) == (sentence, False)


@pytest.mark.parametrize(("sentence", "case"), IMPOSSIBLE.items())
def test_what_the_cloud_does_not_own_is_impossible(sentence, case):
    gpus, request = case

    refusal = Pool(gpus, COMPUTE_HOSTS).propose(request, FIRST_FIT)

    assert (refusal.reason, refusal.impossible) == (sentence, True)


def test_devices_of_another_kind_are_named_and_never_suggested():
    refusal = Pool(OF_BOTH_KINDS).propose(Request(1), FIRST_FIT)
    assert refusal.reason == (
        "1 of 3 GPUs is in use, 2 are of another kind; nothing smaller would fit now either"
    )
    assert (refusal.impossible, refusal.nearest) == (False, None)
    refusal = Pool(OF_BOTH_KINDS).propose(Request(3, kind="cpu"), FIRST_FIT)
    assert refusal.reason == ("3 whole GPUs cannot be had: this cloud has 2 GPUs of kind cpu")
    assert refusal.nearest == Request(2, kind="cpu")


@pytest.mark.parametrize(
    ("kind", "gpus", "reason"),
    [
        ("cpu", [gpu("a", 0)], "no GPU of this cloud is of kind cpu; they are of kind cuda"),
        ("cuda", [gpu("CPU-", 0)], "no GPU of this cloud is of kind cuda; they are of kind cpu"),
    ],
)
def test_a_kind_that_the_cloud_does_not_have_is_impossible(kind, gpus, reason):
    refusal = Pool(gpus).propose(Request(1, kind=kind, gpu_model="A100"), FIRST_FIT)
    assert (refusal.reason, refusal.impossible) == (reason, True)


def test_remote_without_any_compute_host_is_impossible():
    refusal = Pool([gpu("a", 0)]).propose(Request(1, locality="remote"), FIRST_FIT)

    assert refusal.reason == (
        "remote asks for a compute host without these GPUs, and no compute host is known"
    )


def test_a_refusal_has_a_plain_form_with_every_filter_and_the_nearest_request():
    refusal = Pool(MIXED, COMPUTE_HOSTS).propose(Request(3, "shared", 4096), FIRST_FIT)

    assert refusal.to_dict() == {
        "impossible": False,
        "reason": refusal.reason,
        "filters": [{"filter": "memory", "gpus": 3}, {"filter": "exclusive", "gpus": 4}],
        "nearest": {
            "count": 2,
            "mode": "shared",
            "memory_mb": 4096,
            "locality": "any",
            "kind": "cuda",
        },
        "relaxed": None,
    }


@given(strategies.clouds(), strategies.compute_hosts, strategies.requests())
def test_no_gpu_is_dropped_twice(gpus, compute_hosts, request):
    answer = Pool(gpus, compute_hosts).propose(request, FIRST_FIT)

    if isinstance(answer, Refusal):
        assert sum(count for _, count in answer.filters) <= len(gpus)


def local_to_b(*gpus: Gpu, **asked) -> Refusal:
    """Return the answer to a consumer on host b that asks for GPUs of its own host."""
    request = Request(1, locality="local", consumer_host="b", **asked)
    return Pool(gpus, COMPUTE_HOSTS).propose(request, FIRST_FIT)


def test_who_wants_the_gpus_of_his_own_host_and_of_another_one_is_told_what_his_own_has():
    refusal = local_to_b(gpu("a", 0), gpu("b", 0), host="a")
    assert refusal.impossible
    assert refusal.reason == (
        "no GPU of a is local to a consumer on b; 1 whole GPU would fit now on another host"
    )
    assert (refusal.nearest, refusal.relaxed) == (
        Request(1, locality="local", consumer_host="b"),
        "host",
    )
    assert local_to_b(gpu("a", 0), exclusive("b", 0), host="a").nearest is None


def test_who_names_his_own_host_twice_is_not_told_to_give_up_one_of_the_words():
    assert local_to_b(gpu("a", 0), exclusive("b", 0)).relaxed == "locality"
    refusal = local_to_b(gpu("a", 0), exclusive("b", 0), host="b")
    assert (refusal.nearest, refusal.relaxed) == (None, None)
