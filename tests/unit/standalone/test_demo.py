# SPDX-License-Identifier: Apache-2.0
"""The demonstration's proofs hold when they should and fail when they should; its output is readable."""

from __future__ import annotations

import io

import pytest

from gsaas.standalone.demo import proofs, snapshot
from gsaas.standalone.demo.screen import Screen

LEASE = {
    "server": {"host": "gpu1"},
    "devices": [
        {
            "masked_address": f"169.254.71.{index + 1}:8308",
            "gpu_uuid": f"GPU-{index}",
            "gpu_host": "gpu1",
            "real_address": f"192.168.50.11:830{index}",
        }
        for index in range(2)
    ],
}
RIGHT_ANSWERS = {
    "169.254.71.1:8308": {"answer": {"gpu": "GPU-0", "host": "gpu1"}},
    "169.254.71.2:8308": {"answer": {"gpu": "GPU-1", "host": "gpu1"}},
}


def holding(results: list[proofs.Proof]) -> list[bool]:
    return [proof.holds for proof in results]


def test_every_address_must_be_answered_by_the_gpu_that_was_claimed():
    assert holding(proofs.daemons_answer(LEASE, RIGHT_ANSWERS)) == [True, True]


@pytest.mark.parametrize(
    "found",
    [
        {"answer": {"gpu": "GPU-0", "host": "gpu1"}},
        {"answer": {"gpu": "GPU-1", "host": "gpu2"}},
        {"error": "Connection refused"},
    ],
)
def test_another_gpu_another_host_or_no_answer_is_no_proof(found):
    probes = RIGHT_ANSWERS | {"169.254.71.2:8308": found}
    assert holding(proofs.daemons_answer(LEASE, probes)) == [True, False]


def test_an_address_that_answers_though_it_should_not_is_no_proof():
    probes = RIGHT_ANSWERS | {"192.168.50.11:8308": {"error": "Network is unreachable"}}
    assert proofs.does_not_answer("192.168.50.11:8308", "a GPU host", probes).holds
    assert not proofs.does_not_answer("169.254.71.1:8308", "not given", probes).holds


COMPUTING = {"devices": [{"index": 0}, {"index": 1}]}
RIGHT = [{"cgpu": number, "products": 20, "largest_error": 3e-5} for number in (1, 0)]
CUT = [{**each, "error": "reset", "at": 100.5} for each in RIGHT]


def test_each_cgpu_must_have_computed_what_the_vm_computes():
    assert holding(proofs.computes(COMPUTING, RIGHT)) == [True, True]


@pytest.mark.parametrize(
    "wrong",
    [
        {"cgpu": 1, "products": 20, "largest_error": 0.1},
        {"cgpu": 1, "products": 0, "largest_error": 0.0},
        {"cgpu": 1, "products": 7, "largest_error": 3e-5, "error": "reset"},
        {"cgpu": 0, "products": 20, "largest_error": 3e-5},
    ],
)
def test_a_wrong_product_none_an_error_or_another_cgpu_is_no_proof_of_computing(wrong):
    assert holding(proofs.computes(COMPUTING, [RIGHT[1], wrong])) == [True, False]
    assert holding(proofs.computes(COMPUTING, [])) == [False, False]


@pytest.mark.parametrize(
    ("result", "is_kept"),
    [
        ({"allocated_mb": 288, "error": "std::bad_alloc"}, True),
        ({"allocated_mb": 256 + proofs.OWN_MB + 32, "error": "std::bad_alloc"}, False),
        ({"allocated_mb": 288, "error": None}, False),
        ({"allocated_mb": 0, "error": "connection refused"}, False),
    ],
)
def test_a_program_is_kept_to_its_share_by_an_error(result, is_kept):
    assert proofs.is_kept_to_its_share(256, [result]).holds is is_kept
    assert not proofs.is_kept_to_its_share(256, []).holds


def test_computing_must_end_with_the_lease_and_not_before():
    assert holding(proofs.was_cut_off(COMPUTING, 100.0, CUT)) == [True, True]
    assert "0.50 s after the command" in proofs.was_cut_off(COMPUTING, 100.0, CUT)[0].sentence
    assert holding(proofs.was_cut_off(COMPUTING, 101.0, CUT)) == [False, False]
    assert holding(proofs.was_cut_off(COMPUTING, 100.0, RIGHT)) == [False, False]
    assert holding(proofs.was_cut_off(COMPUTING, 100.0, [])) == [False, False]


def test_the_address_beyond_the_last_one_follows_it():
    assert proofs.address_after("169.254.71.9:8308") == "169.254.71.10:8308"


@pytest.mark.parametrize(
    ("value", "masked"),
    [
        ("169.254.71.1:0 169.254.71.2:0", True),
        ("169.254.71.1:0", False),
        ("169.254.71.1:0 169.254.71.2:0 192.168.50.11", False),
        ("169.254.71.1:0 169.254.71.2:0 GPU-1", False),
    ],
)
def test_an_environment_must_name_every_masked_address_and_nothing_behind_it(value, masked):
    assert proofs.environment_is_masked({"RCUDA": value}, LEASE).holds is masked


def test_a_local_lease_has_its_gpus_on_the_host_of_its_vm():
    assert proofs.all_on_one_host(LEASE).holds
    assert not proofs.all_on_one_host(LEASE | {"server": {"host": "gpu2"}}).holds


def test_two_vms_must_be_led_to_different_gpus():
    other = {"devices": [LEASE["devices"][0] | {"gpu_uuid": "GPU-7"}]}
    assert proofs.same_address_leads_to_different_gpus(LEASE, other).holds
    assert not proofs.same_address_leads_to_different_gpus(LEASE, LEASE).holds


@pytest.mark.parametrize(
    ("used", "mode", "leases", "right"),
    [
        (8192, "shared", ["a", "b"], True),
        (8193, "shared", ["a", "b"], False),
        (8192, "exclusive", ["a"], True),
        (8192, "exclusive", ["a", "b"], False),
    ],
)
def test_a_gpu_must_not_be_over_committed(used, mode, leases, right):
    gpu = {"uuid": "GPU-0", "memory_mb": 8192, "used_mb": used, "mode": mode, "leases": leases}
    assert proofs.no_gpu_is_over_committed([gpu]).holds is right


def test_differences_name_what_was_added_and_what_was_removed():
    before = {"links": frozenset({"lo", "eth0"}), "routes": frozenset()}
    after = {"links": frozenset({"lo", "tap1"}), "routes": frozenset()}
    assert snapshot.differences(before, before) == []
    assert snapshot.differences(before, after) == [
        "links: tap1 was added",
        "links: eth0 was removed",
    ]


def test_changes_by_other_programs_are_told_from_those_of_gsaas():
    assert snapshot.is_of_gsaas("network namespaces: gsaas-gpu1 was added", "gsaas-")
    assert snapshot.is_of_gsaas("nftables rules: table ip rodvr 7 was added", "gsaas-")
    assert not snapshot.is_of_gsaas("links: docker0 was added", "gsaas-")


def test_without_a_terminal_the_text_is_plain():
    stream = io.StringIO()
    screen = Screen(stream)
    screen.command(["gsaas", "-t", "-id=two words"])
    screen.output("first\n  second\n")
    screen.proof(True, "so it is")
    screen.proof(False, "so it is not")
    assert stream.getvalue() == (
        "  $ gsaas -t '-id=two words'\n  first\n    second\n\n"
        "  holds  so it is\n  FAILS  so it is not\n"
    )


@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("1", False)])
def test_colour_is_for_terminals_that_want_it(monkeypatch, no_color, coloured):
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    Screen(stream).heading("Now")
    assert ("\x1b[" in stream.getvalue()) is coloured
