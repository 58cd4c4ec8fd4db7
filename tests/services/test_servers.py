# SPDX-License-Identifier: Apache-2.0
"""The tests' own servers come and go without a trace, and say what they miss."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.databases import Daemon, MariaDB, MissingServerError, PostgreSQL

pytestmark = [
    pytest.mark.services,
    pytest.mark.parametrize("kind", [MariaDB, PostgreSQL]),
]


def test_a_server_leaves_neither_process_nor_file(kind: type[Daemon]):
    with kind() as server:
        server.create("passing")
        assert Path(f"/proc/{server.pid}").exists()
        assert server.directory.exists()
    assert not Path(f"/proc/{server.pid}").exists()
    assert not server.directory.exists()


def test_a_server_that_is_not_installed_fails_with_what_to_install(kind: type[Daemon]):
    server = kind()
    server.program = "no-such-server"
    with pytest.raises(MissingServerError, match=f"apt-get install {kind.package}"), server:
        pass
    assert not server.directory.exists()
