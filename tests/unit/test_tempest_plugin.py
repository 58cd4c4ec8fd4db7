# SPDX-License-Identifier: Apache-2.0
"""gsaas-tempest-plugin beside Tempest: its metadata, its document and its options. The test bed runs its tests."""

from __future__ import annotations

import ast
import configparser
import re
import sys
from pathlib import Path

from gsaas_tempest_plugin import config

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = REPOSITORY / "tempest"
PACKAGE = FOLDER / "gsaas_tempest_plugin"
DOCUMENT = (REPOSITORY / "doc" / "tempest.md").read_text()


def metadata() -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.read(FOLDER / "setup.cfg")
    return parser


def classes(path: Path) -> dict[str, ast.ClassDef]:
    return {
        node.name: node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    }


def test_the_entry_point_names_the_plugin() -> None:
    entry = metadata()["options.entry_points"]["tempest.test_plugins"].strip()
    module, _, name = entry.partition(" = ")[2].partition(":")
    assert name in classes(FOLDER / f"{module.replace('.', '/')}.py")


def test_it_requires_what_it_imports() -> None:
    imported = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).partition(".")[0])
    required = metadata()["options"]["install_requires"].split()
    names = {re.split("[<>=]", line)[0].replace(".", "_") for line in required}
    assert imported - sys.stdlib_module_names - {PACKAGE.name} == names


def test_the_document_describes_every_option() -> None:
    rows = re.findall(r"^\| (`[^|]+) \|", DOCUMENT, re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {option.name for option in config.OPTS} <= described


def test_the_document_has_the_defaults() -> None:
    for option in config.OPTS:
        if isinstance(option.default, int) and not isinstance(option.default, bool):
            (row,) = (
                line
                for line in DOCUMENT.splitlines()
                if re.match(rf"\| .*`{option.name}`.* \| -?\d", line)
            )
            names, defaults = row.split(" | ")[:2]
            place = re.findall(r"`(\w+)`", names).index(option.name)
            assert defaults.split(", ")[place] == str(option.default), row


def test_the_document_names_every_module_of_tests() -> None:
    named = set(re.findall(r"^\| `((?:api|scenario)\.test_\w+)", DOCUMENT, re.MULTILINE))
    assert named == {
        f"{path.parent.name}.{path.stem}" for path in (PACKAGE / "tests").rglob("test_*.py")
    }
    for module, name in re.findall(r"`((?:api|scenario)\.test_\w+)\.(\w+)`", DOCUMENT):
        assert name in classes(PACKAGE / "tests" / f"{module.replace('.', '/')}.py")
