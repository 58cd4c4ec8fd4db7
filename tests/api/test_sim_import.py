# SPDX-License-Identifier: Apache-2.0
"""The simulator imports leases that have ended from the API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gsaas.cli import sim as program
from gsaas.sim import history, importers
from tests.api.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World.build(tmp_path)


def test_leases_that_have_ended_become_a_history(world: World, tmp_path: Path):
    body = {"lease": {"cgpus": {"count": 2, "mode": "shared", "memory_mb": 512, "hosts": "one"}}}
    body["lease"]["server"] = None
    lease = world.call("member", "POST", "/v1/leases", body).json["lease"]
    world.call("member", "DELETE", f"/v1/leases/{lease['id']}")
    listed = world.call("member", "GET", "/v1/leases", query_string={"status": "RELEASED"})
    (tmp_path / "leases.json").write_text(json.dumps(listed.json))
    (demand,) = importers.read("leases", tmp_path / "leases.json").demands
    assert (demand.count, demand.mode, demand.memory_mb) == (2, "shared", 512)
    assert demand.project == lease["project_id"]
    assert demand.hosts == "one"
    assert demand.duration > 0


@pytest.mark.parametrize("caller", ["member", "admin"])
def test_the_program_reads_a_history_straight_from_the_api(desk, tmp_path, capsys, caller: str):
    lease = desk.read("-l", "-ncgpus=2", "-poolmem=512", "-mode=shared")
    desk.type("-t", f"-id={lease['server']['id']}")
    desk.sit(caller)
    assert program.main(["import", "api", "-o", str(tmp_path / "history.csv")]) == 0
    (demand,) = history.read(tmp_path / "history.csv")
    assert (demand.count, demand.memory_mb, demand.project) == (2, 512, lease["project_id"])
    assert ("leases of other projects may not be seen" in capsys.readouterr().err) == (
        caller == "member"
    )


def test_the_program_says_how_many_rows_it_left_out_and_why(tmp_path, capsys):
    (tmp_path / "log.swf").write_text(
        "1 0 10 300 4 -1 -1 4 3600 -1 1 5 2 -1 1 0 -1 -1\n"
        "2 0 10 -1 4 -1 -1 4 3600 -1 5 5 2 -1 1 0 -1 -1\n"
    )
    assert program.main(["import", "swf", str(tmp_path / "log.swf")]) == 0
    said = capsys.readouterr()
    assert said.out.count("\n") == 2
    assert said.err == "gsaas-sim: 1 of 2 rows are left out (no run time: 1)\n"


def test_an_api_that_cannot_be_reached_is_one_sentence(monkeypatch, tmp_path, capsys):
    credentials = tmp_path / "credentials.json"
    credentials.write_text(json.dumps({"url": "http://127.0.0.1:9", "token": "t"}))
    credentials.chmod(0o600)
    monkeypatch.setenv("GSAAS_CREDENTIALS", str(credentials))
    assert program.main(["import", "api"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("gsaas-sim: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["api", "leases.json"], "import api reads no file"), (["swf"], "import swf needs a file")],
)
def test_a_file_belongs_to_every_kind_but_the_api(capsys, arguments, reason):
    assert program.main(["import", *arguments]) == 2
    assert reason in capsys.readouterr().err
