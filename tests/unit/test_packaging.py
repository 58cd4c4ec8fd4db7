# SPDX-License-Identifier: Apache-2.0
"""The setup.cfg of each distribution: what it names exists, and what exists or is used is named there."""

from __future__ import annotations

import ast
import configparser
import functools
import hashlib
import re
import subprocess
import sys
from importlib.metadata import EntryPoint, packages_distributions
from itertools import chain
from pathlib import Path

import pytest

import gsaas.rpc  # noqa: F401  (it keeps oslo.messaging to threads, which the module of an entry point imports)

REPOSITORY = Path(__file__).resolve().parents[2]

FOLDERS = {"gsaas": REPOSITORY, "gsaasclient": REPOSITORY / "client"}
"""Package -> the folder of its distribution."""
NEVER_IMPORTED = {
    # SQLAlchemy loads these drivers if the database's URL names them.
    "gsaas": {"pymysql", "psycopg"},
    # The programs `gsaas` and `openstack`.
    "gsaasclient": {"gsaas-launcher", "python-openstackclient"},
}
"""Package -> the libraries of its distribution that its code does not import."""
PRIVATE_NAMES_USED = ("nvidia-ml-py", "oslo.messaging", "oslo.service", "pyroute2")
"""Libraries that gsaas uses beyond their public interface. Each use is in one module, whose docstring says why."""

SPDX = "SPDX-License-Identifier: Apache-2.0"
APACHE_2_0 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""The SHA-256 of https://www.apache.org/licenses/LICENSE-2.0.txt."""

both = pytest.mark.parametrize("package", FOLDERS)


def setup_cfg(section: str, package: str = "gsaas") -> dict[str, list[str]]:
    """Return a section of a setup.cfg whose options are lists: option -> its lines."""
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(FOLDERS[package] / "setup.cfg")
    if section not in parser:
        return {}
    return {
        option: [line for line in value.splitlines() if line]
        for option, value in parser[section].items()
    }


def entry_points(package: str, group: str) -> dict[str, EntryPoint]:
    """Return the entry points of *group* by name."""
    pairs = (line.split(" = ") for line in setup_cfg("options.entry_points", package)[group])
    return {name: EntryPoint(name, value, group) for name, value in pairs}


def find_packages(folder: Path, *include: str) -> list[str]:
    """Return what setuptools finds, in a process of its own: it cannot be imported once a test imported distutils."""
    program = f"from setuptools import find_packages; print(*find_packages(include={include}))"
    command = [sys.executable, "-c", program]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return found.stdout.split()


@pytest.mark.parametrize(
    ("package", "group"),
    [
        (package, group)
        for package in FOLDERS
        for group in setup_cfg("options.entry_points", package)
    ],
)
def test_every_entry_point_names_something_that_exists(package: str, group: str) -> None:
    for entry_point in entry_points(package, group).values():
        loaded = entry_point.load()
        assert callable(loaded) or group == "openstack.cli.extension"  # whose plug-ins are modules


def test_every_policy_module_has_an_entry_point() -> None:
    folder = REPOSITORY / "gsaas" / "gpgpums" / "policies"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "base"}
    named = entry_points("gsaas", "gsaas.gpgpums.policies").values()
    assert {entry_point.module.rpartition(".")[2] for entry_point in named} == modules


@both
def test_every_file_of_a_package_is_installed(package: str) -> None:
    """A file that is not Python is installed only if it is package data."""
    folder = FOLDERS[package]
    files = {path for path in (folder / package).rglob("*") if path.is_file()}
    files -= {path for path in files if path.parent.name == "__pycache__"}
    packages = {folder / name.replace(".", "/") for name in find_packages(folder, "*")}
    assert {path.parent for path in files if path.suffix == ".py"} <= packages
    data = {
        path
        for name, patterns in setup_cfg("options.package_data", package).items()
        for pattern in patterns
        for path in (folder / name.replace(".", "/")).glob(pattern)
    }
    assert {path for path in files if path.suffix != ".py"} == data


@both
def test_a_distribution_installs_one_package(package: str) -> None:
    include = setup_cfg("options.packages.find", package)["include"]
    packages = find_packages(FOLDERS[package], *include)
    assert {name.partition(".")[0] for name in packages} == {package}


def normalised(name: str) -> str:
    """Return the name of a distribution as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(package: str) -> dict[str, str]:
    """Return what the distribution of *package* depends on, with all of its extras: normalised name -> versions."""
    extras = setup_cfg("options.extras_require", package)
    lines = [*setup_cfg("options", package)["install_requires"], *chain(*extras.values())]
    parts = (re.fullmatch(r"([A-Za-z0-9.-]+)(?:\[[\w,]+\])?(.*)", line) for line in lines)
    # An extra may name others of its own distribution.
    return {normalised(part[1]): part[2] for part in parts if part and part[1] != package}


@functools.cache
def imports(package: str) -> list[tuple[str, str]]:
    """Return every file of *package* with every module of another package that it imports."""
    found = []
    for path in sorted((FOLDERS[package] / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in names:
                if name.partition(".")[0] not in {package, *sys.stdlib_module_names}:
                    found.append((str(path.relative_to(REPOSITORY)), name))
    return found


@pytest.mark.slow
@both
def test_every_library_that_is_imported_is_a_dependency(package: str) -> None:
    providers = packages_distributions()
    declared = set(requirements(package))
    missing = set()
    for file, module in imports(package):
        library = module.partition(".")[0]
        if not {normalised(name) for name in providers[library]} & declared:
            missing.add((file, library))
    assert not missing


@pytest.mark.slow
@both
def test_every_dependency_is_imported(package: str) -> None:
    providers = packages_distributions()
    used = {
        normalised(name)
        for _, module in imports(package)
        for name in providers[module.partition(".")[0]]
    }
    assert set(requirements(package)) - used == NEVER_IMPORTED[package]


@pytest.mark.slow
def test_private_modules_of_libraries_are_imported_where_they_may_be() -> None:
    private = {
        (file, name) for package in FOLDERS for file, name in imports(package) if "._" in name
    }
    assert private == {("gsaas/standalone/in_process_bus.py", "oslo_messaging._drivers.base")}


@pytest.mark.parametrize("library", PRIVATE_NAMES_USED)
def test_a_library_whose_private_names_are_used_has_a_newest_release(library: str) -> None:
    versions = requirements("gsaas")[normalised(library)]
    assert "<" in versions or "==" in versions


@pytest.mark.parametrize("folder", ["", "client", "dashboard", "heat", "launcher", "tempest"])
def test_every_distribution_has_the_text_of_its_license(folder: str) -> None:
    text = (REPOSITORY / folder / "LICENSE").read_text()
    assert hashlib.sha256(text.encode()).hexdigest() == APACHE_2_0


def test_every_source_file_names_its_license() -> None:
    """In its first lines, as https://spdx.dev/learn/handling-license-info describes."""
    listed = ("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others")
    found = subprocess.run(
        [*listed, "--exclude-standard"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    files = [REPOSITORY / name for name in found.stdout.split("\0") if name]
    sources = [path for path in files if path.is_file() and is_source(path.read_bytes(), path)]
    assert len(sources) > 500
    assert not [
        str(path.relative_to(REPOSITORY))
        for path in sources
        if SPDX not in "".join(path.read_text().splitlines(keepends=True)[:2])
    ]


def is_source(content: bytes, path: Path) -> bool:
    """Whether *path* is a program of ours, or a part of one."""
    return bool(content) and (path.suffix in {".py", ".c", ".h", ".sh"} or content[:2] == b"#!")
