# SPDX-License-Identifier: Apache-2.0
"""What setup does in a database that can be used already; SQLite takes the place of one on another machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsaas.setup import answers
from gsaas.setup.answers import Controller
from gsaas.setup.machine import State
from gsaas.setup.services import Database

GIVEN = {
    "url": "https://gpu.example.org",
    "auth_url": "https://keystone.example.org/v3",
    "bus": "controller",
    "gpu_network": "192.0.2.0/24",
}


def test_tables_are_made_where_somebody_else_has_made_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", "/nowhere")  # there is no mariadb here
    settings = f"[database]\nconnection = sqlite:///{tmp_path}/gsaas.db\n"
    database = Database(settings, answers.read(Controller, GIVEN, "here", lambda: "new-secret"))
    assert database.is_made
    assert database.state() is State.MISSING
    database.make()
    assert database.state() is State.RIGHT
