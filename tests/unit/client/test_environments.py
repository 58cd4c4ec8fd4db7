# SPDX-License-Identifier: Apache-2.0
"""The environment of a command that `gsaas run` and `gsaas exec` start."""

from __future__ import annotations

import pytest

from gsaasclient.cli.environments import merged

OURS = "/opt/rCUDA/lib"


def test_variables_of_the_lease_replace_those_of_the_user():
    assert merged({"A": "1", "B": "1"}, {"B": "2", "C": "2"}) == {"A": "1", "B": "2", "C": "2"}


@pytest.mark.parametrize(
    ("theirs", "wanted"),
    [
        (None, OURS),
        ("", OURS),
        ("/cuda/lib64:/a b", f"{OURS}:/cuda/lib64:/a b"),
        (f"{OURS}:/cuda/lib64", f"{OURS}:/cuda/lib64"),
        (f"/cuda/lib64:{OURS}", f"/cuda/lib64:{OURS}"),
        (f"{OURS}64", f"{OURS}:{OURS}64"),
    ],
)
def test_the_lease_extends_where_the_user_looks_for_libraries(theirs, wanted):
    own = {} if theirs is None else {"LD_LIBRARY_PATH": theirs}
    assert merged(own, {"LD_LIBRARY_PATH": OURS}) == {"LD_LIBRARY_PATH": wanted}


def test_without_libraries_of_the_lease_the_users_stay():
    assert merged({"LD_LIBRARY_PATH": "/a"}, {}) == {"LD_LIBRARY_PATH": "/a"}
