# SPDX-License-Identifier: Apache-2.0
"""gsaas-dashboard beside Horizon: its metadata and its enabled files. The test bed runs it in a Horizon."""

from __future__ import annotations

import ast
import configparser
import re
import runpy
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
FOLDER = REPOSITORY / "dashboard"
PACKAGE = FOLDER / "gsaas_dashboard"
ENABLED = sorted((PACKAGE / "enabled").glob("_*_panel.py"))
DOCUMENT = (REPOSITORY / "doc" / "dashboard.md").read_text()
PROVIDED = {
    "gsaasclient": "python-gsaasclient",
    "openstack": "openstacksdk",
    "openstack_dashboard": "horizon",
}
"""Module -> its distribution, where that has another name."""


def metadata() -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.read(FOLDER / "setup.cfg")
    return parser


def defined(module: str) -> set[str]:
    """The classes of a module of the dashboard."""
    tree = ast.parse((FOLDER / f"{module.replace('.', '/')}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef)}


def test_it_requires_what_it_imports() -> None:
    imported = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).partition(".")[0])
    names = {PROVIDED.get(name, name) for name in imported - sys.stdlib_module_names}
    required = {
        re.split("[<>=]", line)[0] for line in metadata()["options"]["install_requires"].split()
    }
    assert names - {PACKAGE.name} == required


def test_every_file_is_installed() -> None:
    files = {
        path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    patterns = metadata()["options.package_data"]["gsaas_dashboard"].split()
    data = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    assert {path for path in files if path.suffix != ".py"} == data
    assert all((path.parent / "__init__.py").exists() for path in files - data)


@pytest.mark.parametrize("path", ENABLED, ids=lambda path: path.stem)
def test_an_enabled_file_names_what_is_there(path: Path) -> None:
    enabled = runpy.run_path(str(path))
    module, _, name = enabled["ADD_PANEL"].rpartition(".")
    assert name in defined(module)
    assert module.split(".")[-2] == enabled["PANEL"]
    for script in enabled.get("ADD_JS_FILES", ()):
        assert (PACKAGE / "static" / script).is_file()


def test_the_document_names_every_enabled_file_and_setting() -> None:
    for path in ENABLED:
        assert path.name in DOCUMENT
    settings = re.findall(r'getattr\(settings, "(\w+)"', (PACKAGE / "cloud.py").read_text())
    assert settings
    assert all(f"`{name}`" in DOCUMENT for name in settings)


def test_templates_mark_nothing_as_safe() -> None:
    """Names are tenants': Django escapes all that a template does not except."""
    for path in PACKAGE.rglob("*"):
        if path.suffix in {".html", ".py"}:
            text = path.read_text()
            assert not re.search(r"\|\s*safe|autoescape off|mark_safe|safestring", text), path
