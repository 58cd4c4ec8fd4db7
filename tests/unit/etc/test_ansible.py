# SPDX-License-Identifier: Apache-2.0
"""The playbook types commands that there are, and installs what the operator's guide says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gsaas.cli import manage

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "etc/gsaas/ansible/gsaas.yml").read_text(encoding="utf-8")
PLAYS = yaml.safe_load(TEXT)
GUIDE = (ROOT / "doc/operator-guide.md").read_text(encoding="utf-8")


def typed() -> Iterator[list[str]]:
    """Yield what follows gsaas-manage in each command, with the variables of a host filled in."""
    values = {"inventory_hostname": "gpu1", "roles_here": "compute gpu-host", "item": "compute"}
    for task in tasks():
        argv = task.get("ansible.builtin.command", {}).get("argv", "")
        written = argv if isinstance(argv, str) else " ".join(argv)
        if "gsaas-manage" not in written:
            continue
        words = re.findall(
            r"[\w./-]+", written.partition("gsaas-manage")[2].partition("options[")[0]
        )
        yield [each for word in words for each in values.get(word, word).split()]


def tasks() -> list[dict[str, Any]]:
    return [task for play in PLAYS for task in play["tasks"]]


@pytest.mark.parametrize("words", list(typed()), ids=" ".join)
def test_each_command_is_one_of_gsaas_manage(words: list[str]):
    assert words[0] == "setup"
    manage._parser().parse_args(words)


def test_every_kind_of_machine_is_made():
    assert [words[1] for words in typed()] == ["controller", "answers", "compute"]


def test_what_is_installed_is_what_the_guide_installs():
    for package in re.findall(r"apt-get install --yes (python3-venv.*|build-.*|polkitd)", GUIDE):
        for name in package.split():
            assert f"'{name}'" in TEXT
    assert "'api', 'engine', 'mysql'" in TEXT
    assert "['python-gsaasclient', 'uwsgi']" in TEXT


def test_no_secret_is_in_the_log():
    """Of what a task reads from a controller or writes for a host."""
    for task in tasks():
        if "kept" in str(task.get("register")) or task.get("register") == "given":
            assert task["no_log"]
        if "ansible.builtin.copy" in task:
            assert task["no_log"]
            assert task["ansible.builtin.copy"]["mode"] == "0600"
