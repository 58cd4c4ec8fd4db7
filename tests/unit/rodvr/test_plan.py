# SPDX-License-Identifier: Apache-2.0
"""Plans are values: what the kernel contains and should contain goes in, operations come out."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas.objects.address import Address
from gsaas.objects.binding import Binding, LocalBinding
from gsaas.rodvr import plan
from gsaas.rodvr.plan import (
    AddChain,
    AddLocalMappings,
    AddMappings,
    AddReturnPath,
    AddSources,
    Attachment,
    ChainTag,
    Connection,
    Cut,
    DatapathState,
    DeleteChain,
    DeleteLocalMappings,
    DeleteMappings,
    DeleteReturnPath,
    DeleteSources,
    LocalCut,
    LocalKey,
    Plan,
    ReturnPath,
)

A, B = Address("169.254.71.1", 8308), Address("169.254.71.2", 8308)
G1, G2 = Address("192.0.2.11", 8308), Address("192.0.2.12", 8309)
TAG = ChainTag("240.71.0.1", 5, "fa:16:3e:00:00:05", "10.0.0.5", "port-1")
BACK = ReturnPath(5, "fa:16:3e:00:00:05", "10.0.0.5")


def state_with(*attachments: tuple[str, Attachment]) -> DatapathState:
    state = DatapathState()
    for tap, attachment in attachments:
        state.commit(plan.attach(state, tap, attachment).operations)
    return state


def test_a_new_port_gets_mappings_return_path_and_chain_in_that_order() -> None:
    """Once the chain is there, packets come, and everything behind it must be ready."""
    assert plan.attach(DatapathState(), "tap1", Attachment(TAG, {A: G1})) == Plan(
        [
            AddMappings("240.71.0.1", {A: G1}),
            AddReturnPath("240.71.0.1", BACK),
            AddChain("tap1", TAG),
        ]
    )


def test_a_port_without_mappings_is_attached_all_the_same() -> None:
    assert plan.attach(DatapathState(), "tap1", Attachment(TAG)) == Plan(
        [AddReturnPath("240.71.0.1", BACK), AddChain("tap1", TAG)]
    )


def test_nothing_is_planned_for_what_is_there() -> None:
    wanted = Attachment(TAG, {A: G1, B: G2})
    assert plan.attach(state_with(("tap1", wanted)), "tap1", wanted) == Plan()


def test_a_moved_mapping_is_deleted_added_and_cut_and_no_other_is() -> None:
    state = state_with(("tap1", Attachment(TAG, {A: G1, B: G2})))
    assert plan.attach(state, "tap1", Attachment(TAG, {A: G2, B: G2})) == Plan(
        [DeleteMappings("240.71.0.1", (A,)), AddMappings("240.71.0.1", {A: G2})],
        [Cut("240.71.0.1", A)],
    )


def test_an_additional_mapping_cuts_nothing() -> None:
    state = state_with(("tap1", Attachment(TAG, {A: G1})))
    assert plan.attach(state, "tap1", Attachment(TAG, {A: G1, B: G2})) == Plan(
        [AddMappings("240.71.0.1", {B: G2})]
    )


def test_when_no_mapping_survives_one_cut_ends_all() -> None:
    state = state_with(("tap1", Attachment(TAG, {A: G1, B: G2})))
    assert plan.attach(state, "tap1", Attachment(TAG)) == Plan(
        [DeleteMappings("240.71.0.1", (A, B))], [Cut("240.71.0.1")]
    )


def test_a_tap_that_came_back_keeps_its_mappings_and_loses_its_connections() -> None:
    state = state_with(("tap1", Attachment(TAG, {A: G1})))
    returned = ChainTag("240.71.0.1", 9, "fa:16:3e:00:00:05", "10.0.0.5", "port-1")
    assert plan.attach(state, "tap1", Attachment(returned, {A: G1})) == Plan(
        [
            DeleteChain("tap1"),
            DeleteReturnPath("240.71.0.1"),
            AddReturnPath("240.71.0.1", returned.return_path),
            AddChain("tap1", returned),
        ],
        [Cut("240.71.0.1")],
    )


def test_a_chain_whose_comment_is_not_ours_is_replaced() -> None:
    state = DatapathState(chains={"tap1": None})
    assert plan.attach(state, "tap1", Attachment(TAG)).operations[0] == DeleteChain("tap1")


def test_detaching_removes_chain_mappings_return_path_and_connections() -> None:
    state = state_with(("tap1", Attachment(TAG, {A: G1})))
    assert plan.detach(state, "tap1") == Plan(
        [
            DeleteChain("tap1"),
            DeleteMappings("240.71.0.1", (A,)),
            DeleteReturnPath("240.71.0.1"),
        ],
        [Cut("240.71.0.1")],
    )


OTHER, OTHER_IP = "240.71.0.7", "10.0.1.9"
TWO_ADDRESSES = Attachment(TAG, {A: G1}, {OTHER_IP: OTHER})
OTHER_BACK = ReturnPath(5, TAG.mac, OTHER_IP)


def test_each_address_of_a_port_has_its_identity_return_path_and_mappings() -> None:
    assert plan.attach(DatapathState(), "tap1", TWO_ADDRESSES) == Plan(
        [
            AddMappings("240.71.0.1", {A: G1}),
            AddReturnPath("240.71.0.1", BACK),
            AddMappings(OTHER, {A: G1}),
            AddReturnPath(OTHER, OTHER_BACK),
            AddSources(5, {OTHER_IP: OTHER}),
            AddChain("tap1", TAG),
        ]
    )


def test_another_address_changes_nothing_of_the_first() -> None:
    state = state_with(("tap1", Attachment(TAG, {A: G1})))
    assert plan.attach(state, "tap1", TWO_ADDRESSES) == Plan(
        [
            AddMappings(OTHER, {A: G1}),
            AddReturnPath(OTHER, OTHER_BACK),
            AddSources(5, {OTHER_IP: OTHER}),
        ]
    )


def test_an_address_that_is_taken_away_loses_its_connections_and_the_others_keep_theirs() -> None:
    state = state_with(("tap1", TWO_ADDRESSES))
    assert plan.attach(state, "tap1", Attachment(TAG, {A: G1})) == Plan(
        [DeleteSources(5, (OTHER_IP,)), DeleteMappings(OTHER, (A,)), DeleteReturnPath(OTHER)],
        [Cut(OTHER)],
    )


def test_a_moved_mapping_is_cut_for_every_address() -> None:
    state = state_with(("tap1", TWO_ADDRESSES))
    moved = Attachment(TAG, {A: G2}, {OTHER_IP: OTHER})
    assert set(plan.attach(state, "tap1", moved).cuts) == {Cut("240.71.0.1"), Cut(OTHER)}


def test_detaching_removes_every_address() -> None:
    state = state_with(("tap1", TWO_ADDRESSES))
    change = plan.detach(state, "tap1")
    state.commit(change.operations)
    assert (state, set(change.cuts)) == (DatapathState(), {Cut("240.71.0.1"), Cut(OTHER)})


def test_the_chain_of_a_removed_binding_knows_its_addresses_still() -> None:
    """Its VM's programs get a reset, whichever address they use."""
    state = state_with(("tap1", TWO_ADDRESSES))
    change = plan.attach(state, "tap1", plan.unmapped_attachment(state, TAG))
    assert change.operations == [DeleteMappings("240.71.0.1", (A,)), DeleteMappings(OTHER, (A,))]


def test_sources_without_a_chain_are_removed() -> None:
    state = DatapathState(sources={9: {OTHER_IP: OTHER}}, mappings={OTHER: {A: G1}})
    assert plan.reconcile(state, {}).operations == [
        DeleteSources(9, (OTHER_IP,)),
        DeleteMappings(OTHER, (A,)),
    ]


def test_detaching_what_is_not_attached_is_nothing() -> None:
    assert plan.detach(DatapathState(), "tap1") == Plan()


def test_elements_without_a_chain_are_removed() -> None:
    state = DatapathState(return_paths={"240.71.0.9": BACK}, mappings={"240.71.0.8": {A: G1}})
    assert plan.reconcile(state, {}).operations == [
        DeleteMappings("240.71.0.8", (A,)),
        DeleteReturnPath("240.71.0.9"),
    ]


def test_taps_to_keep_are_left_as_they_are() -> None:
    other = ChainTag("240.71.0.2", 6, "fa:16:3e:00:00:06", "10.0.0.6", "port-2")
    state = state_with(("tap1", Attachment(TAG, {A: G1})), ("tap2", Attachment(other, {A: G2})))
    assert plan.reconcile(state, {}, keep={"tap1"}) == plan.detach(state, "tap2")


def test_connections_that_no_mapping_explains_are_cut() -> None:
    state = DatapathState(mappings={"240.71.0.1": {A: G1}})
    connections = [
        Connection("240.71.0.1", A, G1),
        Connection("240.71.0.1", A, G2),
        Connection("240.71.0.1", B, G1),
        Connection("240.71.0.9", A, G1),
    ]
    assert plan.stale_connections(connections, state) == [
        Cut("240.71.0.1", A),
        Cut("240.71.0.1", B),
        Cut("240.71.0.9", A),
    ]


def test_a_tag_survives_its_way_through_a_comment() -> None:
    spaced = ChainTag("240.71.0.1", 5, "fa:16:3e:00:00:05", "10.0.0.5", "a port with spaces")
    assert ChainTag.parse(str(spaced)) == spaced


@pytest.mark.parametrize("text", ["", "another program's comment", "240.71.0.1 x mac ip port"])
def test_other_comments_are_no_tags(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|not enough values"):
        ChainTag.parse(text)


def test_macs_are_compared_in_lower_case() -> None:
    binding = Binding("port-1", "lease-1", "tap1", "FA:16:3E:00:00:05", "10.0.0.5", {A: G1})
    assert Attachment.for_binding(binding, "240.71.0.1", 5) == Attachment(TAG, {A: G1})


# -- any state, and any wanted state ----------------------------------------------------------------

TAPS = ("tap1", "tap2", "tap3")
IDENTITIES = ("240.71.0.1", "240.71.0.2", "240.71.0.3", "240.71.0.4")
OTHER_IPS, OTHER_IDENTITIES = ("10.0.1.8", "10.0.1.9"), ("240.71.0.8", "240.71.0.9")
mappings = st.dictionaries(st.sampled_from((A, B)), st.sampled_from((G1, G2)))
tags = st.builds(
    ChainTag,
    st.sampled_from(IDENTITIES),
    st.integers(1, 2),
    st.just("fa:16:3e:00:00:05"),
    st.just("10.0.0.5"),
    st.sampled_from(("port-1", "port-2", "port-3")),
)
states = st.builds(
    DatapathState,
    st.dictionaries(st.sampled_from(TAPS), st.none() | tags),
    st.dictionaries(st.sampled_from(IDENTITIES), st.just(BACK)),
    st.dictionaries(
        st.sampled_from(IDENTITIES),
        st.dictionaries(st.sampled_from((A, B)), st.sampled_from((G1, G2)), min_size=1),
    ),
    sources=st.dictionaries(
        st.integers(1, 3),
        st.dictionaries(st.sampled_from(OTHER_IPS), st.sampled_from(OTHER_IDENTITIES), min_size=1),
        max_size=1,
    ),
)


@st.composite
def attachments_by_tap(draw: st.DrawFn) -> dict[str, Attachment]:
    """Attachments as an endpoint makes them: no two have the same identity."""
    taps = draw(st.lists(st.sampled_from(TAPS), unique=True))
    identities = draw(st.permutations(IDENTITIES))
    others = draw(st.permutations(OTHER_IDENTITIES))
    return {
        tap: Attachment(
            ChainTag(identity, number + 1, BACK.mac, BACK.ip, f"port-{tap}"),
            draw(mappings),
            dict(zip(draw(st.lists(st.sampled_from(OTHER_IPS), unique=True)), others, strict=False))
            if number == 0
            else {},
        )
        for number, (tap, identity) in enumerate(zip(taps, identities, strict=False))
    }


def accepted(state: DatapathState, operations: Iterable[plan.Operation]) -> DatapathState:
    """What a kernel contains afterwards that refuses to delete what is missing and to add what exists."""
    after = state.copy()
    for operation in operations:
        match operation:
            case AddChain(tap, _):
                assert tap not in after.chains
            case AddReturnPath(identity, _):
                assert identity not in after.return_paths
            case AddMappings(identity, new):
                assert new
                assert not after.mappings.get(identity, {}).keys() & new.keys()
            case AddSources(ifindex, new):
                assert new
                assert not after.sources.get(ifindex, {}).keys() & new.keys()
            case DeleteSources(ifindex, ips):
                assert ips
                assert set(ips) <= after.sources[ifindex].keys()
            case DeleteChain(tap):
                assert tap in after.chains
            case DeleteReturnPath(identity):
                assert identity in after.return_paths
            case DeleteMappings(identity, masked):
                assert masked
                assert set(masked) <= after.mappings[identity].keys()
        after.commit([operation])
    return after


@given(states, attachments_by_tap())
def test_a_kernel_accepts_every_plan_and_then_contains_exactly_what_is_wanted(
    state: DatapathState, wanted: dict[str, Attachment]
) -> None:
    before = state.copy()
    after = accepted(state, plan.reconcile(state, wanted).operations)
    assert state == before
    assert after == state_with(*wanted.items())
    assert plan.reconcile(after, wanted) == Plan()


@given(states, attachments_by_tap())
def test_every_mapping_that_is_lost_is_cut(
    state: DatapathState, wanted: dict[str, Attachment]
) -> None:
    made = plan.reconcile(state, wanted)
    after = accepted(state, made.operations)
    for identity, former in state.mappings.items():
        for masked, real in former.items():
            if after.mappings.get(identity, {}).get(masked) != real:
                assert {Cut(identity), Cut(identity, masked)} & set(made.cuts)


@given(states, st.sampled_from(TAPS))
def test_a_kernel_accepts_every_detachment(state: DatapathState, tap: str) -> None:
    after = accepted(state, plan.detach(state, tap).operations)
    assert tap not in after.chains


X, Y = Address("169.254.72.1", 8308), Address("169.254.72.2", 8308)


def test_a_local_binding_maps_each_masked_address_for_its_user() -> None:
    binding = LocalBinding("lease-1", "lease-1", 1000, {X: G1, Y: G2})
    assert plan.local_mappings(binding) == {LocalKey(X, 1000): G1, LocalKey(Y, 1000): G2}


def test_local_mappings_that_change_are_deleted_added_and_cut_and_no_others_are() -> None:
    state = DatapathState(
        local_mappings={LocalKey(X, 1000): G1, LocalKey(Y, 1000): G2, LocalKey(A, None): G1}
    )
    former = [LocalKey(X, 1000), LocalKey(Y, 1000)]
    assert plan.replace_local(
        state, former, {LocalKey(X, 1000): G2, LocalKey(Y, 1000): G2}
    ) == Plan(
        [DeleteLocalMappings((LocalKey(X, 1000),)), AddLocalMappings({LocalKey(X, 1000): G2})],
        [LocalCut(X)],
    )
    assert plan.replace_local(state, former, {}) == Plan(
        [DeleteLocalMappings(tuple(former))], [LocalCut(X), LocalCut(Y)]
    )
    assert (
        plan.replace_local(state, former, {key: state.local_mappings[key] for key in former})
        == Plan()
    )


def test_a_local_mapping_for_another_user_replaces_the_former() -> None:
    """Connections of the former user must end."""
    state = DatapathState(local_mappings={LocalKey(X, 1000): G1})
    assert plan.replace_local(state, [LocalKey(X, 1000)], {LocalKey(X, 1001): G1}) == Plan(
        [DeleteLocalMappings((LocalKey(X, 1000),)), AddLocalMappings({LocalKey(X, 1001): G1})],
        [LocalCut(X)],
    )


def test_a_local_mapping_of_a_former_process_is_replaced() -> None:
    state = DatapathState(local_mappings={LocalKey(X, 1000): G1})
    assert plan.replace_local(state, [], {LocalKey(X, 1000): G2}) == Plan(
        [DeleteLocalMappings((LocalKey(X, 1000),)), AddLocalMappings({LocalKey(X, 1000): G2})],
        [LocalCut(X)],
    )


local_states = st.dictionaries(
    st.builds(LocalKey, st.sampled_from([A, B, X, Y]), st.sampled_from([None, 0, 1000])),
    st.sampled_from([G1, G2]),
)


@given(local_states, local_states)
def test_any_local_state_becomes_any_other_without_overwriting(before, wanted) -> None:
    state = DatapathState(local_mappings=dict(before))
    for operation in plan.replace_local(state, list(before), wanted).operations:
        if isinstance(operation, AddLocalMappings):
            assert not operation.mappings.keys() & state.local_mappings.keys()
        state.commit([operation])
    assert state.local_mappings == wanted


def test_local_connections_that_no_mapping_explains_are_cut() -> None:
    state = DatapathState(local_mappings={LocalKey(X, 1000): G1})
    known = [(X, G1), (X, G2), (Y, G2)]
    assert plan.stale_local_connections(known, state) == [LocalCut(X), LocalCut(Y)]
    assert plan.stale_local_connections(known[:1], state) == []
