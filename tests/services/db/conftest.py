# SPDX-License-Identifier: Apache-2.0
"""The specification of tests/unit/db, which has SQLite, on the databases that have a server."""

from __future__ import annotations

import pytest

from tests.support.databases import Server


@pytest.fixture(params=["mariadb", "postgresql"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each kind of database server in turn."""
    return request.getfixturevalue(f"{request.param}_server")
