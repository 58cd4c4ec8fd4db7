# SPDX-License-Identifier: Apache-2.0
"""How a kernel differs is told in the words of whoever has to look for it there."""

from __future__ import annotations

from gsaas.objects.address import Address
from gsaas.objects.endpoint_audit import MISSING, SURPLUS, WRONG, EndpointAudit, KernelDifference
from gsaas.rodvr import plan
from gsaas.rodvr.differences import differences
from gsaas.rodvr.plan import Attachment, ChainTag, DatapathState, LocalKey

A, G1, G2 = (Address(ip, 8308) for ip in ("169.254.71.1", "192.168.50.11", "192.168.50.12"))
TAG = ChainTag("240.71.0.1", 7, "fa:16:3e:00:00:05", "10.0.0.5", "port-1")
WANTED = {"tap1": Attachment(TAG, {A: G1}, {"10.0.0.6": "240.71.0.2"})}


def told(state: DatapathState) -> set[tuple[str, str]]:
    change = plan.reconcile(state, WANTED)
    return {(each.how, each.what) for each in differences(change, state, WANTED)}


def as_wanted() -> DatapathState:
    state = DatapathState()
    state.commit(plan.reconcile(state, WANTED).operations)
    return state


def test_a_kernel_as_it_should_be_differs_in_nothing() -> None:
    assert told(as_wanted()) == set()


def test_all_that_a_port_needs_is_missing_in_an_empty_kernel() -> None:
    assert told(DatapathState()) == {
        (MISSING, "the chain of the tap tap1"),
        (MISSING, f"the mapping {A} of port port-1"),
        (MISSING, "the return path of port port-1"),
        (MISSING, "the source 10.0.0.6 of interface 7"),
    }


def test_what_has_another_value_is_wrong_and_neither_missing_nor_surplus() -> None:
    state = as_wanted()
    state.mappings["240.71.0.1"] = {A: G2}
    assert told(state) == {(WRONG, f"the mapping {A} of port port-1")}


def test_what_no_port_has_is_surplus() -> None:
    state = as_wanted()
    state.mappings["240.71.0.9"] = {A: G2}
    nobodys = "the identity 240.71.0.9, which is nobody's"
    assert told(state) == {(SURPLUS, f"the mapping {A} of {nobodys}")}


def test_the_mappings_of_programs_of_the_host_are_those_of_their_users() -> None:
    state = DatapathState(local_mappings={LocalKey(A, 1000): G1})
    change = plan.replace_local(state, list(state.local_mappings), {LocalKey(A, None): G2})
    assert differences(change, state, {}) == (
        KernelDifference(SURPLUS, f"the mapping {A} of this host's programs, for user 1000"),
        KernelDifference(MISSING, f"the mapping {A} of this host's programs, for every user"),
    )


def test_what_a_host_says_is_one_line_of_printable_text() -> None:
    data = {"bindings": [], "kernel": [[SURPLUS, "a\nb\x1b[2J" + "x" * 1000]]}
    [difference] = EndpointAudit.from_dict(data).kernel
    assert difference.what.isprintable()
    assert len(difference.what) == 512
