# SPDX-License-Identifier: Apache-2.0
"""Keystone's token is asked for once, by the programs in C and in Python, and never used for other credentials."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import time
from pathlib import Path

import pytest
from openstack.config import loader

from gsaasclient import token_cache
from gsaasclient.token_cache import Cache, Token
from tests.api.cached_tokens import ONE, Programs, rewrite, succeeds
from tests.api.cached_tokens import both as both
from tests.api.cached_tokens import files as files
from tests.api.test_client_cloud import CloudUser, write_clouds_yaml
from tests.api.test_client_cloud import certificate as certificate
from tests.api.test_client_cloud import user as user

pytestmark = pytest.mark.slow


def test_python_signs_in_and_c_goes_on_with_its_token(user: CloudUser, both: Programs):
    succeeds(both.launcher)
    assert (both.calls(), user.keystone.sign_ins) == (["run"], ["ada"])
    succeeds(both.launcher)
    succeeds(both.python)
    user.read("list")
    assert (both.calls(), user.keystone.sign_ins) == ([], ["ada"])


def test_the_cached_token_is_for_its_user_alone(user: CloudUser, files):
    user.read("list")
    (file,) = files()
    folder = file.parent
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, folder)] == [0o600, 0o700]
    assert b"lovelace" not in file.read_bytes()
    assert json.loads(file.read_text())["token"] == "first"


def test_of_many_commands_at_once_one_signs_in(user: CloudUser, both: Programs):
    processes = [both.launcher.start(*ONE, "true") for _ in range(6)]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, "")
    assert user.keystone.sign_ins == ["ada"]


def test_a_token_is_not_used_for_another_password(user: CloudUser, both: Programs):
    user.read("list")
    user.set(OS_PASSWORD="babbage")
    assert both.launcher.run(*ONE, "true").returncode == 125
    assert "does not accept your credentials" in user.refused("list")


def test_a_token_is_not_used_for_another_project(user: CloudUser, both: Programs):
    user.read("list")
    user.set(OS_PROJECT_NAME="red")
    succeeds(both.launcher)
    assert (both.calls(), len(user.keystone.sign_ins)) == (["run"], 2)


def test_a_token_is_not_used_for_another_entry_of_clouds_yaml(
    user: CloudUser, both: Programs, tmp_path: Path
):
    write_clouds_yaml(tmp_path, user.keystone.url)
    user.keystone.enrol("grace", "hopper", ["first"])
    user.set(OS_CLOUD="here")
    user.read("list")
    succeeds(both.launcher)
    assert both.calls() == []
    write_clouds_yaml(tmp_path, user.keystone.url, region_name="Elsewhere")
    assert both.launcher.run(*ONE, "true").returncode == 125
    assert "Elsewhere" in user.refused("list")


def test_a_token_near_its_end_is_not_used(user: CloudUser, both: Programs, files):
    user.read("list")
    rewrite(files()[0], expires_at=int(time.time()) + token_cache.MARGIN)
    succeeds(both.launcher)
    assert (both.calls(), len(user.keystone.sign_ins)) == (["run"], 2)


@pytest.mark.parametrize("program", ["launcher", "python"])
def test_a_token_that_was_revoked_is_replaced(user: CloudUser, both: Programs, files, program: str):
    user.keystone.give_out("second", roles=["member", "reader"])
    user.keystone.enrol("ada", "lovelace", ["first", "second"])
    user.read("list")
    user.keystone.revoke("first")
    succeeds(getattr(both, program))
    assert json.loads(files()[0].read_text())["token"] == "second"


def test_a_token_that_ends_while_the_command_runs_is_renewed(
    user: CloudUser, both: Programs, tmp_path: Path
):
    user.keystone.give_out("second", roles=["member", "reader"])
    user.keystone.enrol("ada", "lovelace", ["first", "second"])
    user.read("list")
    gate = tmp_path / "gate"
    script = f"echo begun; until [ -e {gate} ]; do sleep 0.02; done; exit 5"
    process = both.launcher.start(*ONE, "sh", "-c", script)
    assert process.stdout.readline() == "begun\n"
    user.keystone.revoke("first")
    gate.touch()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (5, "")
    assert both.calls() == ["renew-token"]
    assert {lease["status"] for lease in user.read("list")} == set()


def test_a_token_that_cannot_be_renewed_leaves_the_lease_to_its_keepalive(
    user: CloudUser, both: Programs, tmp_path: Path
):
    user.read("list")
    gate = tmp_path / "gate"
    script = f"echo begun; until [ -e {gate} ]; do sleep 0.02; done; exit 5"
    process = both.launcher.start(*ONE, "sh", "-c", script)
    assert process.stdout.readline() == "begun\n"
    user.keystone.revoke("first")
    user.keystone.enrol("ada", "changed", ["first"])
    gate.touch()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 5
    assert "it ends by itself within 60 s" in err


# What is hashed


def test_every_file_in_which_the_sdk_looks_is_hashed(monkeypatch: pytest.MonkeyPatch):
    searched = {*loader.CONFIG_FILES, *loader.SECURE_FILES, *loader.VENDOR_FILES}
    hashed = token_cache.configuration_files(os.environ, os.environ["HOME"])
    assert searched <= {str(Path(path).absolute()) for path in hashed}


def test_a_configuration_that_is_no_regular_file_is_not_read(user: CloudUser, tmp_path: Path):
    path = tmp_path / "queue"
    os.mkfifo(path)
    assert token_cache.find({**os.environ, "OS_CLIENT_CONFIG_FILE": str(path)}) is None


# Concurrent writers


def write_many(folder: Path, number: int) -> None:
    place = Cache(str(folder), "one.json", b"credentials")
    for _ in range(200):
        place.write(Token("http://api", f"token-{number}-" + "x" * 20_000, 2_000_000_000 + number))


def test_no_reader_finds_half_of_a_file(tmp_path: Path):
    folder = tmp_path / "gsaas"
    place = Cache(str(folder), "one.json", b"credentials")
    place.write(Token("http://api", "first", 2_000_000_000))
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(folder, number)) for number in range(3)]
    for writer in writers:
        writer.start()
    found = 0
    while any(writer.is_alive() for writer in writers):
        token = place.read()
        assert token is not None
        found += 1
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert found > 0
    assert [path.name for path in folder.iterdir()] == ["one.json"]
