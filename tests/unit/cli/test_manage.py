# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage` explains itself, and says in one sentence why it cannot ask the database."""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
from pathlib import Path

import pytest
from oslo_utils import timeutils

from gsaas import rpc
from gsaas.cli import manage
from gsaas.grants.keyring import Keyring
from gsaas.rpc import signatures


@pytest.fixture
def complaint(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Check a database by its URL, expect that it cannot be asked, and return the complaint."""

    def check(connection: str) -> str:
        path = tmp_path / "gsaas.conf"
        path.write_text(f"[database]\n{connection}\n")
        assert manage.main(["--config-file", str(path), "db", "check"]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        return printed.err

    return check


def test_a_missing_connection_is_named(complaint):
    assert complaint("") == (
        "gsaas-manage: no database is configured: set connection in the section [database]\n"
    )


def test_what_is_no_url_is_not_repeated_for_it_may_hold_a_password(complaint):
    assert complaint("connection = gsaas:secret") == (
        "gsaas-manage: [database]connection is not a database URL\n"
    )


def test_a_database_that_does_not_answer_is_named_without_its_password(complaint, tmp_path: Path):
    socket = tmp_path / "no-socket"
    said = complaint(f"connection = mysql+pymysql://gsaas:secret@/gsaas?unix_socket={socket}")
    assert said.startswith("gsaas-manage: cannot connect to mysql+pymysql://gsaas:***@/gsaas")
    assert "No such file or directory" in said
    assert "secret" not in said
    assert said.count("\n") == 1


def test_a_directory_that_is_not_there_is_no_place_for_sqlite(complaint, tmp_path: Path):
    url = f"sqlite:///{tmp_path}/missing/gsaas.sqlite"
    assert complaint(f"connection = {url}") == (
        f"gsaas-manage: cannot connect to {url}: unable to open database file\n"
    )


@pytest.mark.parametrize(
    "url", ["oracle+nothing://db/gsaas", "mysql+mysqldb://db/gsaas", "paper://db"]
)
def test_a_kind_of_database_without_its_driver_cannot_be_asked(complaint, url: str):
    assert complaint(f"connection = {url}").startswith(f"gsaas-manage: cannot connect to {url}: ")


@pytest.mark.parametrize(
    ("url", "todo"),
    [
        ("mysql+pymysql://db/gsaas", "install gsaas[mysql], which brings it"),
        ("postgresql+psycopg://db/gsaas", "install gsaas[postgresql], which brings it"),
        (
            "postgresql+psycopg2://db/gsaas",
            "begin the URL with postgresql+psycopg:// and install gsaas[postgresql], which brings that driver",
        ),
        (
            "mysql://db/gsaas",
            "begin the URL with mysql+pymysql:// and install gsaas[mysql], which brings that driver",
        ),
    ],
)
def test_a_driver_that_is_not_installed_is_named_with_the_extra_that_brings_one(
    complaint, monkeypatch: pytest.MonkeyPatch, url: str, todo: str
):
    for module in ("pymysql", "MySQLdb", "psycopg", "psycopg2"):
        monkeypatch.setitem(sys.modules, module, None)  # importing it fails
    said = complaint(f"connection = {url}")
    assert said.startswith(f"gsaas-manage: cannot connect to {url}: import of ")
    assert said.endswith(f"; {todo}\n")
    assert said.count("\n") == 1


def test_a_configuration_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]):
    assert manage.main(["--config-file", "/nowhere/gsaas.conf", "db", "check"]) == 2
    assert "/nowhere/gsaas.conf" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["db"], ["db", "downgrade"], ["cells"]])
def test_other_words_are_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        manage.main(words)
    assert ended.value.code == 2
    assert "usage: gsaas-manage" in capsys.readouterr().err


def test_the_help_teaches_when_to_run_it_and_what_a_database_is_called(
    capsys: pytest.CaptureFixture[str],
):
    with pytest.raises(SystemExit) as ended:
        manage.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for word in ("gsaas-manage db upgrade", "connection = mysql+pymysql://", "Exit status"):
        assert word in text


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Check an installation without OpenStack: (exit status, what was printed)."""
    path = tmp_path / "gsaas.conf"
    path.write_text(
        "[DEFAULT]\ntransport_url = in-process://\n"
        f"[database]\nconnection = sqlite:///{tmp_path}/gsaas.sqlite\n"
        "[api]\nauth_strategy = token-file\n"
        "[engine]\ncloud = standalone\n"
    )

    def check(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        status = manage.main(["--config-file", str(path), *words])
        return status, capsys.readouterr().out

    yield check
    logging.disable(logging.NOTSET)


def test_a_check_up_tells_what_keeps_gsaas_from_working_and_what_to_do(check):
    status, out = check("check")
    assert status == 1
    assert "fail  database       the database has no tables of GSaaS yet" in out
    assert "-> gsaas-manage db upgrade" in out
    assert "ok    message bus    it accepts messages" in out


def test_a_check_up_of_what_works_is_fine_and_warns_of_what_nobody_has_yet(check):
    check("db", "upgrade")
    status, out = check("check", "-f", "json")
    assert status == 0
    found = {finding["part"]: finding["level"] for finding in json.loads(out)}
    assert found == {
        "configuration": "ok",
        "database": "ok",
        "claims": "ok",
        "reservations": "ok",
        "leases": "ok",
        "monitors": "warn",
        "endpoints": "warn",
        "message bus": "ok",
        "bus signatures": "warn",
        "quotas": "ok",
    }


def test_a_part_that_raises_what_nobody_expected_is_a_finding_and_the_others_go_on(
    check, monkeypatch: pytest.MonkeyPatch
):
    def broken(_bus):
        raise RuntimeError("the moon is full")

    monkeypatch.setattr("gsaas.rpc.check", broken)
    status, out = check("check")
    assert status == 1
    assert "it cannot be checked: the moon is full" in out
    assert "ok    quotas" in out


def test_a_new_key_for_grants_is_one_that_can_be_used_and_another_each_time(capsys):
    keys = []
    for _ in range(2):
        assert manage.main(["grant-key"]) == 0
        keys.append(capsys.readouterr().out.strip())
    assert keys[0] != keys[1]
    for key in keys:
        now = timeutils.utcnow()
        ring = Keyring([key])
        assert ring.verify(ring.sign("lease-1", "blue", now), now).lease_id == "lease-1"


def test_the_key_of_an_agent_follows_from_the_secret_its_host_and_its_role(capsys, tmp_path):
    settings = tmp_path / "gsaas.conf"
    settings.write_text("[bus]\nsecrets = first,second\n")

    def key(*words: str) -> str:
        assert manage.main(["--config-file", str(settings), "bus", "key", *words]) == 0
        return capsys.readouterr().out.strip()

    gpu1 = key("gpu1", "--role", "gpu")
    assert gpu1 == key("gpu1", "--role", "gpu")
    assert gpu1 == signatures.key_of("first", rpc.agent_name(rpc.MONITOR, "gpu1"))
    assert gpu1 != key("gpu2", "--role", "gpu")
    assert gpu1 != key("gpu1", "--role", "compute")
    assert key() != key()
    for words in (["gpu1"], ["--role", "gpu"]):
        assert manage.main(["--config-file", str(settings), "bus", "key", *words]) == 2
    settings.write_text("")
    unset = ["--config-file", str(settings), "bus", "key", "gpu1", "--role", "gpu"]
    assert manage.main(unset) == 1
    assert manage.main(["bus", "key", "@controllers", "--role", "gpu"]) == 2


def test_the_permissions_of_a_host_are_those_of_its_agents_only(capsys):
    assert manage.main(["bus", "permissions", "gpu.1", "--role", "gpu"]) == 0
    first, second, third = map(shlex.split, capsys.readouterr().out.splitlines())
    assert first[:5] == ["rabbitmqctl", "set_permissions", "-p", "gsaas", "gsaas-gpu.1"]
    configure, write, read = (re.compile(pattern) for pattern in first[5:])
    agent = "gpu.1@gsaas-monitor"
    own = [agent, f"{agent}.agent", f"{agent}_fanout", f"{agent}_reply_" + "0" * 32]
    hosts = ("gpu11", "gpu.12", "gpu.1_fanout", "gpu.1.agent", "a-gpu.1")
    others = [f"{host}@gsaas-monitor" for host in hosts]
    others += ["gpu.1@gsaas-rodvr", "gsaas-engine", "gsaas-engine_fanout", "gsaas", "gpu.1"]
    for pattern in (configure, write, read):
        assert [name for name in own + others if pattern.match(name)] == own
    shared = [name for name in ("amq.topic", "amq.default") if write.match(name)]
    assert shared == ["amq.topic", "amq.default"]
    assert not configure.match("amq.topic")
    assert not read.match("amq.default")
    keys = r"^(gpu\.1@gsaas-monitor(\.agent)?)$"
    assert second[5:] == ["amq.topic", "^(gsaas-engine|gsaas-nobody)$", keys]
    assert third[:3] == ["rabbitmqctl", "set_user_limits", "gsaas-gpu.1"]
    assert json.loads(third[3]) == {"max-connections": 64, "max-channels": 256}
