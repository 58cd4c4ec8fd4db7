"""setup.cfg: what it names exists, and what exists is named there."""

from __future__ import annotations

import configparser
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from setuptools import find_packages

REPOSITORY = Path(__file__).resolve().parents[2]


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
    packages = {
        REPOSITORY / package.replace(".", "/") for package in find_packages(str(REPOSITORY))
    }
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
    packages = find_packages(str(REPOSITORY), include=include)
    assert {package.partition(".")[0] for package in packages} == {"gsaas"}
