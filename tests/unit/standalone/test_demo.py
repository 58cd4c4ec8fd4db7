"""What the demonstration calls a proof, and what it would not."""

from __future__ import annotations

import io

import pytest

from gsaas.standalone.demo import machine, proofs
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
RIGHT = {
    "169.254.71.1:8308": {"answer": {"gpu": "GPU-0", "host": "gpu1"}},
    "169.254.71.2:8308": {"answer": {"gpu": "GPU-1", "host": "gpu1"}},
}


def verdicts(given: list[proofs.Proof]) -> list[bool]:
    return [proof.holds for proof in given]


def test_every_address_must_be_answered_by_the_gpu_that_was_claimed():
    assert verdicts(proofs.daemons_answer(LEASE, RIGHT)) == [True, True]


@pytest.mark.parametrize(
    "found",
    [
        {"answer": {"gpu": "GPU-0", "host": "gpu1"}},
        {"answer": {"gpu": "GPU-1", "host": "gpu2"}},
        {"error": "Connection refused"},
    ],
)
def test_another_gpu_another_host_or_no_answer_is_no_proof(found):
    probes = RIGHT | {"169.254.71.2:8308": found}
    assert verdicts(proofs.daemons_answer(LEASE, probes)) == [True, False]


def test_what_should_not_answer_must_not():
    probes = RIGHT | {"192.168.50.11:8308": {"error": "Network is unreachable"}}
    assert proofs.unanswered("192.168.50.11:8308", "a GPU host", probes).holds
    assert not proofs.unanswered("169.254.71.1:8308", "not given", probes).holds


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
def test_an_environment_must_name_all_that_is_given_and_nothing_behind_it(value, masked):
    assert proofs.environment_is_masked({"RCUDA": value}, LEASE).holds is masked


def test_a_local_lease_has_its_gpus_where_its_vm_is():
    assert proofs.all_on_one_host(LEASE).holds
    assert not proofs.all_on_one_host(LEASE | {"server": {"host": "gpu2"}}).holds


def test_two_vms_must_be_led_to_different_gpus():
    other = {"devices": [LEASE["devices"][0] | {"gpu_uuid": "GPU-7"}]}
    assert proofs.led_apart(LEASE, other).holds
    assert not proofs.led_apart(LEASE, LEASE).holds


@pytest.mark.parametrize(
    ("used", "mode", "leases", "right"),
    [
        (8192, "shared", ["a", "b"], True),
        (8193, "shared", ["a", "b"], False),
        (8192, "exclusive", ["a"], True),
        (8192, "exclusive", ["a", "b"], False),
    ],
)
def test_a_gpu_is_never_given_twice(used, mode, leases, right):
    gpu = {"uuid": "GPU-0", "memory_mb": 8192, "used_mb": used, "mode": mode, "leases": leases}
    assert proofs.never_more_than_there_is([gpu]).holds is right


def test_a_changed_machine_is_told_by_what_came_and_what_went():
    before = {"links": frozenset({"lo", "eth0"}), "routes": frozenset()}
    after = {"links": frozenset({"lo", "tap1"}), "routes": frozenset()}
    assert machine.differences(before, before) == []
    assert machine.differences(before, after) == ["links: tap1 came", "links: eth0 went"]


def test_what_others_change_meanwhile_is_told_from_what_is_ours():
    assert machine.ours("network namespaces: gsaas-gpu1 came", "gsaas-")
    assert machine.ours("nftables rules: table ip rodvr 7 came", "gsaas-")
    assert not machine.ours("links: docker0 came", "gsaas-")


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
