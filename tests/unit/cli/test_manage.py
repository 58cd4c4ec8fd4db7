"""`gsaas-manage` explains itself, and says in one sentence why it cannot ask the database."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsaas.cli import manage


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
