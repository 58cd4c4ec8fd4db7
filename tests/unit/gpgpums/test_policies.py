"""Which GPU each policy takes, and how policies are found."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint

import pytest
import stevedore

from gsaas import exceptions
from gsaas.gpgpums import policies
from gsaas.gpgpums.policies.first_fit import FirstFit
from gsaas.gpgpums.pool import Pool
from gsaas.gpgpums.state import Gpu, Request

CLOUD = (
    Gpu("a0", "a", 0, memory_mb=24000, used_mb=20000),
    Gpu("a1", "a", 1, memory_mb=24000, used_mb=6000),
    Gpu("b0", "b", 0, memory_mb=24000),
    Gpu("b1", "b", 1, memory_mb=80000),
    Gpu("b2", "b", 2, memory_mb=80000, used_mb=80000, exclusive=True),
    Gpu("c0", "c", 0, memory_mb=80000, used_mb=40000),
    Gpu("c1", "c", 1, memory_mb=24000),
)
COMPUTE_HOSTS = ("a", "b", "d")

GOLDEN = {
    # policy, count, MiB per cGPU or None for whole GPUs, locality: the GPUs, in order of cGPUs
    ("first-fit", 1, 2000, "any"): "a0",
    ("first-fit", 3, 2000, "any"): "a0 a0 a1",
    ("first-fit", 1, 30000, "any"): "b1",
    ("first-fit", 2, None, "any"): "b0 b1",
    ("first-fit", 2, None, "local"): "b0 b1",
    ("first-fit", 2, 10000, "local"): "b0 b0",
    ("first-fit", 2, 20000, "remote"): "b0 b1",
    ("first-fit", 3, None, "any"): "b0 b1 c1",
    ("least-load-fit", 1, 2000, "any"): "b1",
    ("least-load-fit", 3, 30000, "any"): "b1 b1 c0",
    ("least-load-fit", 4, 20000, "any"): "b1 b1 b1 c0",
    ("least-load-fit", 2, None, "any"): "b1 b0",
    ("least-load-fit", 3, None, "any"): "b1 b0 c1",
    ("least-load-fit", 2, None, "local"): "b1 b0",
    ("least-load-fit", 1, 2000, "remote"): "b1",
}


@pytest.mark.parametrize(("case", "chosen"), GOLDEN.items(), ids=lambda value: str(value))
def test_each_policy_takes_the_gpus_it_promises(case, chosen):
    policy, count, memory_mb, locality = case
    request = Request(count, "shared" if memory_mb else "exclusive", memory_mb, locality)

    placement = Pool(CLOUD, COMPUTE_HOSTS).propose(request, policies.load(policy))

    assert [share.gpu_uuid for share in placement.shares] == chosen.split()


def test_every_policy_has_a_golden_row_and_the_name_of_its_entry_point():
    assert policies.names() == sorted({policy for policy, *_ in GOLDEN})
    assert [policies.load(name).name for name in policies.names()] == policies.names()


def test_an_unknown_policy_is_answered_with_those_there_are():
    with pytest.raises(exceptions.UnknownPolicy, match="first-fit, least-load-fit"):
        policies.load("best-guess")


@pytest.fixture
def strange_entry_points(monkeypatch):
    """Three policies are installed: one good, one whose module is not there, one that is no
    policy."""
    installed = [
        EntryPoint("first-fit", f"{FirstFit.__module__}:FirstFit", policies.NAMESPACE),
        EntryPoint("lost", "gsaas.gpgpums.policies.lost:Lost", policies.NAMESPACE),
        EntryPoint("odd", "decimal:Decimal", policies.NAMESPACE),
    ]
    monkeypatch.setattr(
        stevedore.ExtensionManager, "list_entry_points", lambda _self: list(installed)
    )
    policies._policies.cache_clear()
    yield
    policies._policies.cache_clear()


def test_a_broken_policy_is_logged_and_the_others_work(strange_entry_points, caplog):
    with caplog.at_level(logging.ERROR, logger=policies.__name__):
        assert policies.names() == ["first-fit"]

    assert [("lost" in line, "odd" in line) for line in caplog.messages] == [
        (True, False),
        (False, True),
    ]
