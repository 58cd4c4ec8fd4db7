"""The rules of `doc/architecture.md` about who may import whom."""

from __future__ import annotations

import graphlib
import subprocess
import sys
from pathlib import Path

import grimp

REPOSITORY = Path(__file__).resolve().parents[2]


def test_no_module_imports_itself_by_a_detour():
    graph = grimp.build_graph("gsaas", cache_dir=None, exclude_type_checking_imports=True)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the modules


def test_what_decides_knows_no_input_or_output_and_layers_are_kept():
    """The contracts stand in pyproject.toml."""
    program = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run(
        [program, "--no-cache", "--no-logo"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout


def test_nothing_brings_eventlet_in():
    """oslo.service installs it; whoever imports it changes how every thread of the process waits."""
    script = (
        "import sys, gsaas.standalone.service, gsaas.cli.engine, gsaas.cli.rodvr, gsaas.cli.monitor;"
        "print(sys.modules.get('eventlet'))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "None"
