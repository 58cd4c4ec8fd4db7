# SPDX-License-Identifier: Apache-2.0
"""What this source tree imports comes from distributions that it declares, not from what these happen to bring."""

from __future__ import annotations

import ast
import functools
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
OURS = (
    "gsaas",
    "python-gsaasclient",
    "gsaas-launcher",
    "gsaas-dashboard",
    "gsaas-heat",
    "gsaas-tempest-plugin",
)
FOLDERS = ("bench", "client", "doc", "generate", "gsaas", "images", "studies", "tests")
ELSEWHERE = {
    "cloudinit": "tests/support/cloud_init.py unpacks it",
    "ggml": "tests/support/ggml.py builds it",
    "gguf": "tests/support/llama.py installs it",
    "llama_cpp_py_sync": "tests/support/llama.py installs it",
    "neutron": "in the environment of the test bed",
    "neutron_lib": "in the environment of the test bed",
}
"""Modules that are not imported in the environment of the tests, and where they are."""


@functools.cache
def providers() -> Mapping[str, list[str]]:
    """Return the distributions that install each module; asking all of them takes as long as reading a folder."""
    return packages_distributions()


def declared() -> set[str]:
    """Return the names of the distributions that ours require, with all extras, and of those that tests do."""
    listed = [line for name in OURS for line in requires(name) or []]
    groups = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["dependency-groups"]
    listed += [line for group in groups.values() for line in group if isinstance(line, str)]
    return {canonicalize_name(Requirement(line).name) for line in listed} | set(OURS)


def imported(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the first name of each module that files in *folder* import, and the file."""
    for path in folder.rglob("*.py"):
        if "build" in path.relative_to(REPOSITORY).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from ((alias.name.split(".")[0], path) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.split(".")[0], path


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_imported_is_declared(folder: str) -> None:
    declared_ones, distributions = declared(), providers()
    elsewhere = {*sys.stdlib_module_names, *FOLDERS, *ELSEWHERE}
    undeclared = {
        f"{path.relative_to(REPOSITORY)}: {module}"
        for module, path in imported(REPOSITORY / folder)
        if module not in elsewhere
        and not {canonicalize_name(each) for each in distributions.get(module, ())} & declared_ones
    }
    assert undeclared == set()
