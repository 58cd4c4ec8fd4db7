# SPDX-License-Identifier: Apache-2.0
"""When a published claim is reproduced, holds in direction only, or is refuted."""

from __future__ import annotations

import pytest

from studies.claims import Sample, Verdict, all_of, at_least, at_most, near, within

REPRODUCED, DIRECTION, REFUTED = Verdict


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        pytest.param(at_least(2.25, 3, none=1), DIRECTION, id="more than 3 times is not 2.25"),
        pytest.param(at_least(3.1, 3, none=1), REPRODUCED, id="but 3.1"),
        pytest.param(at_least(0.9, 3, none=1), REFUTED, id="and less is not more"),
        pytest.param(near(2.3, 10, none=1), DIRECTION, id="10 times is not 2.3"),
        pytest.param(near(1.6, 2, none=1), DIRECTION, id="doubled is not 1.6"),
        pytest.param(near(1.8, 2, none=1), REPRODUCED, id="but nearly 1.8"),
        pytest.param(near(0.8, 2, none=1), REFUTED, id="and not 0.8"),
        pytest.param(near(-3, 5.06), REFUTED, id="shorter is not longer"),
        pytest.param(near(50, 25), DIRECTION, id="twice as much is too much"),
        pytest.param(at_most(470, 460, none=480), DIRECTION, id="fewer nodes, but not so few"),
        pytest.param(at_most(480, 460, none=480), REFUTED, id="not fewer"),
        pytest.param(at_most(450, 460, none=480), REPRODUCED, id="even fewer"),
        pytest.param(at_most(1, 0.5), REFUTED, id="a bound that no direction goes with"),
        pytest.param(within(95.8, 95.4, 0.5), REPRODUCED, id="half a point"),
        pytest.param(within(96.0, 95.4, 0.5), REFUTED, id="more than half a point"),
        pytest.param(all_of([REPRODUCED, DIRECTION]), DIRECTION, id="the part that does worst"),
        pytest.param(all_of([REFUTED, DIRECTION]), REFUTED, id="in any order"),
    ],
)
def test_the_verdict(verdict: Verdict, expected: Verdict):
    assert verdict is expected


def test_a_sample_says_mean_and_spread():
    assert Sample((1.0, 2.0, 3.0)).text() == "2.0 ± 1.0"
    assert Sample((4.0,)).text(2) == "4.00 ± 0.00"
