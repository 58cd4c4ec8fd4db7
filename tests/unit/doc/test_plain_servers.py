# SPDX-License-Identifier: Apache-2.0
"""What doc/plain-servers.md says of properties and options, and the examples in it."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from gsaas import conf
from gsaas.objects import plain_server

DOCUMENT = Path(__file__).parents[3] / "doc" / "plain-servers.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
TWO_SHARES = {"count": 2, "memory_mb": 2048, "mode": "shared"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_the_table_has_every_property_and_no_other():
    assert set(re.findall(r"^\| `(gsaas:\w+)` \|", TEXT, re.MULTILINE)) == set(plain_server.FIELDS)


def test_every_property_that_is_written_anywhere_exists():
    assert set(re.findall(r"gsaas:\w+", TEXT)) - {"gsaas:leases", "gsaas:vendordata"} == set(
        plain_server.FIELDS
    )


def metadata(document: Any) -> dict[str, str]:
    """Return the mapping with properties, however deep it is."""
    if isinstance(document, dict):
        if plain_server.COUNT in document:
            return document
        return next(filter(None, map(metadata, document.values())), {})
    if isinstance(document, list):
        return next(filter(None, map(metadata, document)), {})
    return {}


def test_each_example_asks_for_what_the_page_says():
    ansible, heat = map(yaml.safe_load, blocks("yaml"))
    (terraform,) = blocks("hcl")
    (python,) = blocks("python")
    (literal,) = (
        ast.literal_eval(keyword.value)
        for node in ast.walk(ast.parse(python))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "meta"
    )
    for given in (
        metadata(ansible),
        metadata(heat),
        dict(re.findall(r'"(gsaas:\w+)" *= *"(\w+)"', terraform)),
        literal,
    ):
        assert plain_server.wanted({}, given) == TWO_SHARES


def test_the_commands_set_properties_that_are_understood():
    lines = re.sub(r" \\\n +", " ", TEXT).splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("    openstack ")]
    given = [
        dict(word.split("=", 1) for word in command if word.startswith("gsaas:"))
        for command in commands
    ]
    assert [plain_server.wanted({}, each) for each in given if each] == [TWO_SHARES, TWO_SHARES]


def test_the_options_can_be_set_as_they_are_written(tmp_path: Path):
    ours, _nova = blocks("ini")
    (tmp_path / "gsaas.conf").write_text(ours)
    loaded = conf.load(files=[str(tmp_path / "gsaas.conf")])
    assert (loaded.plain_servers.properties, loaded.plain_servers.no_gpu) == ("flavors", "error")
    assert conf.problems(loaded) == []
