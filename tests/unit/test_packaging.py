"""setup.cfg: what it names exists, and what exists or is used is named there."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, packages_distributions
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

OPTIONAL = ("pyarrow",)
"""Imported only where it is installed: the extra `sim`."""
LOADED_BY_NAME = ("pymysql", "psycopg")
"""SQLAlchemy loads them if the database's URL names them."""
PRIVATE_NAMES_USED = ("nvidia-ml-py", "oslo.messaging", "oslo.service", "pyroute2")
"""Libraries that gsaas uses beyond their public interface. Each use is in one module, whose docstring says why."""


def setup_cfg(section: str) -> dict[str, list[str]]:
    """Return a section of setup.cfg whose options are lists: option -> its lines."""
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(REPOSITORY / "setup.cfg")
    return {
        option: [line for line in value.splitlines() if line]
        for option, value in parser[section].items()
    }


def entry_points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of *group* by name."""
    pairs = (line.split(" = ") for line in setup_cfg("options.entry_points")[group])
    return {name: EntryPoint(name, value, group) for name, value in pairs}


def find_packages(*include: str) -> list[str]:
    """Return what setuptools finds, in a process of its own: it cannot be imported once a test imported distutils."""
    program = f"from setuptools import find_packages; print(*find_packages(include={include}))"
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return found.stdout.split()


@pytest.mark.parametrize("group", setup_cfg("options.entry_points"))
def test_every_entry_point_names_something_that_exists(group: str) -> None:
    for entry_point in entry_points(group).values():
        assert callable(entry_point.load())


def test_every_policy_module_has_an_entry_point() -> None:
    folder = REPOSITORY / "gsaas" / "gpgpums" / "policies"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "base"}
    named = entry_points("gsaas.gpgpums.policies").values()
    assert {entry_point.module.rpartition(".")[2] for entry_point in named} == modules


def test_every_file_of_a_package_is_installed() -> None:
    """A file that is not Python is installed only if it is package data."""
    files = {path for path in (REPOSITORY / "gsaas").rglob("*") if path.is_file()}
    files -= {path for path in files if path.parent.name == "__pycache__"}
    packages = {REPOSITORY / package.replace(".", "/") for package in find_packages("*")}
    assert {path.parent for path in files if path.suffix == ".py"} <= packages
    data = {
        path
        for package, patterns in setup_cfg("options.package_data").items()
        for pattern in patterns
        for path in (REPOSITORY / package.replace(".", "/")).glob(pattern)
    }
    assert {path for path in files if path.suffix != ".py"} == data


def test_only_packages_of_gsaas_are_installed() -> None:
    include = setup_cfg("options.packages.find")["include"]
    packages = find_packages(*include)
    assert {package.partition(".")[0] for package in packages} == {"gsaas"}


def normalised(name: str) -> str:
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements() -> dict[str, str]:
    """Return what gsaas depends on: normalised name -> versions."""
    parts = (
        re.fullmatch(r"([A-Za-z0-9.-]+)(?:\[\w+\])?(.*)", line)
        for line in setup_cfg("options")["install_requires"]
    )
    return {normalised(part[1]): part[2] for part in parts if part}


def imports() -> Iterator[tuple[str, str]]:
    """Yield every file of gsaas with every module of another package that it imports."""
    for path in sorted((REPOSITORY / "gsaas").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                if name.partition(".")[0] not in {"gsaas", *sys.stdlib_module_names}:
                    yield str(path.relative_to(REPOSITORY)), name


def test_every_library_that_is_imported_is_a_dependency() -> None:
    providers = packages_distributions()
    declared = {*requirements(), *OPTIONAL}
    missing = set()
    for file, module in imports():
        package = module.partition(".")[0]
        if not {normalised(name) for name in providers[package]} & declared:
            missing.add((file, package))
    assert not missing


def test_every_dependency_is_imported() -> None:
    providers = packages_distributions()
    used = {
        normalised(name) for _, module in imports() for name in providers[module.partition(".")[0]]
    }
    assert set(requirements()) - used == set(LOADED_BY_NAME)
    assert set(OPTIONAL) <= used


def test_private_modules_of_libraries_are_imported_where_they_may_be() -> None:
    private = {(file, name) for file, name in imports() if "._" in name}
    assert private == {("gsaas/standalone/in_process_bus.py", "oslo_messaging._drivers.base")}


@pytest.mark.parametrize("library", PRIVATE_NAMES_USED)
def test_a_library_whose_private_names_are_used_has_a_newest_release(library: str) -> None:
    versions = requirements()[normalised(library)]
    assert "<" in versions or "==" in versions
