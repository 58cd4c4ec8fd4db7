# SPDX-License-Identifier: Apache-2.0
"""The entry point of the images: what it plans from Kolla's `config.json`, and what it does."""

from __future__ import annotations

import grp
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from images import start
from images.build import ROLES
from images.start import Permission, Placement, Plan, Unusable, demotion, place, plan

REPOSITORY = Path(start.__file__).parents[1]
IMAGE = {"GSAAS_COMMAND": "gsaas-engine", "GSAAS_USER": "gsaas"}
FILE = {
    "source": "/in/gsaas.conf",
    "dest": "/etc/gsaas/gsaas.conf",
    "owner": "gsaas",
    "perm": "0600",
}
ME = f"{pwd.getpwuid(os.getuid()).pw_name}:{grp.getgrgid(os.getgid()).gr_name}"


def exists(pattern: str) -> list[str]:
    return [pattern]


def missing(_pattern: str) -> list[str]:
    return []


def test_without_a_config_json_the_images_own_command_is_run():
    assert plan({}, [], IMAGE) == Plan([], [], ["gsaas-engine"])


@pytest.mark.parametrize(
    ("config", "arguments", "environment", "command"),
    [
        ({"command": "gsaas-engine --debug"}, [], {}, ["gsaas-engine", "--debug"]),
        ({"command": "gsaas-engine 'a b'"}, [], {}, ["gsaas-engine", "a b"]),
        ({"command": "gsaas-engine"}, ["gsaas-manage", "check"], {}, ["gsaas-manage", "check"]),
        (
            {"command": "gsaas-engine"},
            [],
            {"KOLLA_BOOTSTRAP": "", "GSAAS_BOOTSTRAP_COMMAND": "gsaas-manage db upgrade"},
            ["gsaas-manage", "db", "upgrade"],
        ),
        ({}, [], {"KOLLA_BOOTSTRAP": ""}, ["gsaas-engine"]),
        ({"command": "gsaas-engine -v"}, ["kolla_start"], {}, ["gsaas-engine", "-v"]),
    ],
)
def test_arguments_override_the_command_of_config_json_and_this_the_images(
    config, arguments, environment, command
):
    assert plan(config, arguments, IMAGE | environment).command == command


def test_files_are_placed_with_their_owner_and_mode():
    assert plan({"config_files": [FILE]}, [], IMAGE, exists).placements == [
        Placement("/in/gsaas.conf", "/etc/gsaas/gsaas.conf", "gsaas", 0o600)
    ]


def test_every_file_that_matches_a_pattern_is_placed_in_the_folder():
    entry = FILE | {"source": "/in/*.conf", "dest": "/etc/gsaas/", "perm": "0o0640"}
    assert plan({"config_files": [entry]}, [], IMAGE, lambda _: ["/in/b.conf", "/in/a.conf"]) == (
        [
            Placement("/in/a.conf", "/etc/gsaas/a.conf", "gsaas", 0o640),
            Placement("/in/b.conf", "/etc/gsaas/b.conf", "gsaas", 0o640),
        ],
        [],
        ["gsaas-engine"],
    )


def test_a_file_that_is_missing_is_an_error_unless_it_is_optional():
    with pytest.raises(Unusable, match=r"/in/gsaas\.conf is missing"):
        plan({"config_files": [FILE]}, [], IMAGE, missing)
    assert plan({"config_files": [FILE | {"optional": True}]}, [], IMAGE, missing).placements == []


def test_permissions_are_given_to_what_exists():
    config = {"permissions": [{"path": "/var/log/gsaas", "owner": "gsaas:adm", "recurse": True}]}
    assert plan(config, [], IMAGE, exists).permissions == [
        Permission("/var/log/gsaas", "gsaas:adm", None, True)
    ]
    assert plan(config, [], IMAGE, missing).permissions == []


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"directories": []}, "has the key directories, which is not supported"),
        ({"config_files": [FILE | {"merge": True}]}, "has the key merge, which is not supported"),
        ({"config_files": [{"source": "/in"}]}, "lacks the key dest"),
        ({"config_files": [FILE | {"perm": "rw"}]}, "rw in .* is no permission such as 0640"),
        ({"permissions": [{"path": "/in"}]}, "lacks the key owner"),
    ],
)
def test_what_is_not_supported_is_refused_instead_of_ignored(config, sentence):
    with pytest.raises(Unusable, match=sentence):
        plan(config, [], IMAGE, exists)


def test_a_placed_file_replaces_what_was_there(tmp_path):
    (tmp_path / "new").write_bytes(b"new \xff")
    (tmp_path / "new").chmod(0o644)
    dest = tmp_path / "etc" / "gsaas.conf"
    for _ in range(2):
        place(Placement(str(tmp_path / "new"), str(dest), ME, 0o600))
        assert dest.read_bytes() == b"new \xff"
        assert dest.stat().st_mode & 0o7777 == 0o600
        assert [path.name for path in dest.parent.iterdir()] == ["gsaas.conf"]


def test_a_placed_folder_can_be_entered_by_those_who_may_read_it(tmp_path):
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "file").write_text("text")
    (tmp_path / "out" / "stale").mkdir(parents=True)
    place(Placement(str(tmp_path / "in"), str(tmp_path / "out"), ME, 0o640))
    modes = {
        str(p.relative_to(tmp_path)): p.stat().st_mode & 0o777 for p in tmp_path.rglob("out*/**")
    }
    assert modes["out/sub"] == 0o750
    assert (tmp_path / "out" / "sub" / "file").stat().st_mode & 0o777 == 0o640
    assert not (tmp_path / "out" / "stale").exists()


def test_root_becomes_the_user_and_keeps_the_capabilities_that_it_has():
    net_admin = 1 << 12
    assert demotion("gsaas", ["net_admin", "sys_admin"], net_admin) == [
        *("setpriv", "--reuid=gsaas", "--regid=gsaas", "--init-groups"),
        *("--inh-caps=+net_admin", "--ambient-caps=+net_admin", "--"),
    ]
    assert demotion("gsaas", ["net_admin"], 0)[-2:] == ["--init-groups", "--"]


def test_a_command_that_does_not_exist_is_reported_in_one_sentence():
    done = subprocess.run(
        [sys.executable, start.__file__, "no-such-command"],
        env={"PATH": os.environ["PATH"], **IMAGE, "GSAAS_USER": ME.partition(":")[0]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "no-such-command" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("role", ROLES)
def test_the_config_json_of_every_role_can_be_planned(role):
    config = json.loads((REPOSITORY / "images" / role / "config.json").read_text())
    planned = plan(config, [], IMAGE, exists)
    assert all(place.mode == 0o600 for place in planned.placements)
    containerfile = (REPOSITORY / "images/Containerfile").read_text()
    stage = containerfile.partition(f"\nFROM base AS {role}\n")[2].partition("\nFROM ")[0]
    own = next(line for line in stage.splitlines() if "GSAAS_COMMAND=" in line)
    assert " ".join(planned.command) in own
