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
    gsaas, tower = (contract for contract in contracts() if contract["type"] == "layers")
    assert gsaas["containers"] == ["gsaas"]
    assert gsaas["exhaustive"]
    assert tower["layers"] == ["bench", "studies", "gsaas"]
    inside = [{f"gsaas/{name}" for name in layer.split(" | ")} for layer in gsaas["layers"]]
    return [*reversed(inside), {"studies"}, {"bench"}]


def rows() -> list[tuple[int, str, str]]:
    """Return the rows of the table in doc/architecture.md: floor, package, what it is."""
    found = (ROW.fullmatch(line) for line in ARCHITECTURE.read_text().splitlines())
    return [(int(row["floor"]), row["package"], row["what"]) for row in found if row]


@pytest.mark.parametrize("root", ["gsaas", "studies", "bench"])
def test_no_module_imports_itself_by_a_detour(root: str) -> None:
    graph = grimp.build_graph(root, cache_dir=None, exclude_type_checking_imports=True)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the modules


def test_what_decides_knows_no_input_or_output_and_floors_are_kept() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run(
        [program, "--no-cache", "--no-logo"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout


def test_what_decides_imports_tables_for_their_types_only() -> None:
    """The contract ignores these imports. At run time they must not happen."""
    (pure,) = (contract for contract in contracts() if contract["name"] == PURE)
    ignored = [line.split(" -> ") for line in pure["ignore_imports"] if "gsaas.db" in line]
    graph = grimp.build_graph("gsaas", cache_dir=None, exclude_type_checking_imports=True)
    for importer, imported in ignored:
        assert not graph.direct_import_exists(importer=importer, imported=imported)


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


def test_nothing_brings_eventlet_in() -> None:
    """A library may install it. A process that imports it would change how each of its threads waits."""
    script = (
        "import sys, gsaas.standalone.service, gsaas.cli.engine, gsaas.cli.rodvr, gsaas.cli.monitor;"
        "print(sys.modules.get('eventlet'))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "None"
