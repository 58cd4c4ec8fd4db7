# SPDX-License-Identifier: Apache-2.0
"""The rules of doc/architecture.md about which module may import which. They are contracts in pyproject.toml."""

from __future__ import annotations

import graphlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import grimp
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ARCHITECTURE = REPOSITORY / "doc" / "architecture.md"
PURE = "What decides knows no I/O"
FLOORS = 10
"""At most so many, or the table is no longer understood at a glance."""

ROW = re.compile(r"\| (?P<floor>\d+) \| `(?P<package>[a-z_./]+)` \| (?P<what>[^|]+) \|")


def contracts() -> list[dict[str, Any]]:
    """Return the contracts of import-linter."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["tool"]["importlinter"]["contracts"]


def floors() -> list[set[str]]:
    """Return the packages and top-level modules of each floor, the lowest floor first, as the contracts have them."""
    layers = [contract for contract in contracts() if contract["type"] == "layers"]
    gsaas, tower = (one for one in layers if one.get("containers") in (["gsaas"], None))
    assert gsaas["containers"] == ["gsaas"]
    assert gsaas["exhaustive"]
    assert tower["layers"] == ["bench | generate", "studies", "gsaas", "gsaasclient"]
    inside = [{f"gsaas/{name}" for name in layer.split(" | ")} for layer in gsaas["layers"]]
    return [{"client/gsaasclient"}, *reversed(inside), {"studies"}, {"bench", "generate"}]


def rows() -> list[tuple[int, str, str]]:
    """Return the rows of the table in doc/architecture.md: floor, package, what it is."""
    found = (ROW.fullmatch(line) for line in ARCHITECTURE.read_text().splitlines())
    return [(int(row["floor"]), row["package"], row["what"]) for row in found if row]


@pytest.mark.parametrize("root", ["gsaas", "gsaasclient", "studies", "bench", "generate"])
def test_no_module_imports_itself_through_others(root: str) -> None:
    """Imports for types count, too."""
    graph = grimp.build_graph(root, cache_dir=None, exclude_type_checking_imports=False)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the modules


@pytest.mark.slow
def test_the_contracts_about_imports_are_kept() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run(
        [program, "--no-cache", "--no-logo"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout


def test_there_are_few_floors() -> None:
    assert len(floors()) <= FLOORS


def test_the_table_of_floors_is_the_contract() -> None:
    """doc/architecture.md has one row for each package, highest floor first, each floor in alphabetical order."""
    wanted = [
        (number, package)
        for number, packages in reversed(list(enumerate(floors(), start=1)))
        for package in sorted(packages)
    ]
    named = [(floor, package.removesuffix(".py").rstrip("/")) for floor, package, _ in rows()]
    assert named == wanted


def test_the_table_of_floors_names_folders_and_files() -> None:
    for _, package, _ in rows():
        path = REPOSITORY / package
        assert path.is_dir() if package.endswith("/") else path.is_file(), package


def test_rows_of_leases_stay_in_the_database_package() -> None:
    """Elsewhere a lease is `gsaas.objects.lease.Lease`, a frozen value."""
    rows_of_leases = re.compile(r"\b(LeaseRow|ClaimRow|LeaseEventRow)\b")
    outside = {
        path
        for root in ("gsaas", "studies")
        for path in (REPOSITORY / root).rglob("*.py")
        if REPOSITORY / "gsaas" / "db" not in path.parents
    }
    assert outside
    assert not {path for path in outside if rows_of_leases.search(path.read_text())}
