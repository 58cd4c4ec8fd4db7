# SPDX-License-Identifier: Apache-2.0
"""The versions of the middleware on GPU hosts, compared with that of the clients."""

from __future__ import annotations

import pytest

from gsaas.checkup.findings import Level
from gsaas.checkup.releases import compare_middleware

ALIKE = {"gpu1": "7fbd364", "gpu2": "7fbd364"}
MIXED = {"gpu1": "7fbd364", "gpu2": "a415e66"}


@pytest.mark.parametrize(
    ("told", "wanted", "level", "said"),
    [
        (ALIKE, None, Level.OK, "the daemons of all 2 hosts that reported it have 7fbd364"),
        (ALIKE, "7fbd364", Level.OK, "the daemons of all 2 hosts that reported it have 7fbd364"),
        (MIXED, "7fbd364", Level.WARN, "may hang on these hosts: gpu2 (a415e66)"),
        (MIXED, None, Level.WARN, "different versions, one of which clients cannot use"),
        (ALIKE, "a415e66", Level.WARN, "may hang on these hosts: gpu1 (7fbd364), gpu2 (7fbd364)"),
    ],
)
def test_a_version_that_differs_is_named_with_its_host(told, wanted, level, said):
    (finding,) = compare_middleware(told, wanted)
    assert finding.level == level
    assert said in finding.said


def test_hosts_that_have_told_nothing_are_not_judged():
    assert list(compare_middleware({}, "7fbd364")) == []
