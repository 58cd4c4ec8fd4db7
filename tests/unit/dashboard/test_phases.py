# SPDX-License-Identifier: Apache-2.0
"""The picture of a launch's phases."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gsaas.objects import timings
from gsaas_dashboard.presentation import phases

LAUNCH = {
    "gpu_selection": 0.001,
    "check": 0.1,
    "claim": 0.9,
    "creation": 1.0,
    "activation": 4.0,
    "deployment": 2.0,
    "rodvr_configuration": 0.5,
}


def test_it_knows_every_phase_of_the_service() -> None:
    assert set(phases.LABELS) == set(timings.PHASES)


def test_each_phase_begins_where_the_one_before_it_ends() -> None:
    bars = {bar.label: bar for bar in phases.picture(LAUNCH).bars}
    claim, creation = bars["claim"], bars["creation of the VM"]
    assert abs(claim.x + claim.width - creation.x) <= 0.2
    assert [bar.y for bar in bars.values()] == sorted(bar.y for bar in bars.values())


def test_the_connection_to_the_gpus_takes_place_while_the_vm_boots() -> None:
    bars = {bar.label: bar for bar in phases.picture(LAUNCH).bars}
    assert bars["connection to the GPUs"].x == bars["boot until Nova says active"].x


def test_who_cannot_see_it_is_told_the_same() -> None:
    text = phases.picture({"claim": 0.0015, "queue": 75}).text
    assert text == "wait in the queue: 1 min 15 s; claim: 1.5 ms"


def test_without_a_phase_there_is_no_picture() -> None:
    assert phases.picture({}) is None
    assert phases.picture(None) is None
    assert phases.picture({"a phase of tomorrow": 1.0}) is None


@given(
    st.dictionaries(
        st.sampled_from([*phases.LABELS]), st.floats(min_value=0, max_value=1e6), min_size=1
    )
)
def test_no_bar_leaves_the_picture(seconds: dict[str, float]) -> None:
    picture = phases.picture(seconds)
    for bar in picture.bars:
        assert bar.x >= phases.TEXT
        assert bar.x + bar.width <= picture.width - phases.RIGHT + phases.SHORTEST + 0.2
        assert bar.y + phases.BAR <= picture.height
