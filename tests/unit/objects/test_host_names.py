# SPDX-License-Identifier: Apache-2.0
"""Which host a caller means by a name."""

from __future__ import annotations

import pytest

from gsaas.objects.host_names import meant_by

KNOWN = {
    "compute1",
    "Node7.example.org",
    "node8.a",
    "node8.b",
    "node9",
    "node9.a",
    "Twin",
    "twin",
} | {
    "10",
    "10.1.0.7",
}


@pytest.mark.parametrize(
    ("name", "hosts"),
    [
        ("compute1", ["compute1"]),
        ("COMPUTE1", ["compute1"]),
        (" compute1.", ["compute1"]),
        ("compute1.example.org", ["compute1"]),
        ("node7", ["Node7.example.org"]),
        ("NODE7.example", ["Node7.example.org"]),
        ("node7.example.com", []),
        ("node8", ["node8.a", "node8.b"]),
        ("node8.B", ["node8.b"]),
        ("NODE9", ["node9"]),
        ("node9.b", ["node9"]),
        ("twin", ["twin"]),
        ("TWIN", ["Twin", "twin"]),
        ("compute", []),
        ("compute12", []),
        ("", []),
        ("10.0.0.1", []),
        ("10.1.0", []),
        ("10.1.0.7", ["10.1.0.7"]),
        ("10.example.org", ["10"]),
    ],
)
def test_it_is_the_host_of_that_name_but_for_case_and_domain(name, hosts):
    assert meant_by(name, KNOWN) == hosts
