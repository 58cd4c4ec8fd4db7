"""The rules of `doc/architecture.md` about which module may import which."""

from __future__ import annotations

import graphlib
import os
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def test_no_module_imports_itself_through_others():
    graph = grimp.build_graph("gsaas", cache_dir=None, exclude_type_checking_imports=True)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the modules


def test_the_contracts_about_imports_are_kept():
    """The contracts are in pyproject.toml."""
    program = Path(sys.executable).with_name("lint-imports")
    checked = subprocess.run(
        [program, "--no-cache", "--no-logo"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout


def test_no_process_imports_eventlet():
    """oslo.service installs it; importing it changes how every thread of the process waits."""
    modules = "gsaas.standalone.service, gsaas.cli.engine, gsaas.cli.rodvr, gsaas.cli.monitor"
    assert "eventlet" not in imported_by(modules)


API_SETTINGS = """
[DEFAULT]
transport_url = rabbit://gsaas:secret@127.0.0.1/
[database]
connection = sqlite://
[api]
auth_strategy = token-file
token_file = {folder}/tokens.json
[engine]
cloud = nova
[remoting]
driver = rcuda
[service_user]
auth_type = none
endpoint = http://127.0.0.1:1
"""


@pytest.mark.parametrize(
    "modules",
    [
        "gsaas.wsgi.api",
        "gsaas.cli.engine, gsaas.cloud.nova.cloud, gsaas.limits.keystone",
        "gsaas.cli.rodvr",
        "gsaas.cli.monitor, gsaas.gpu_host.sources.nvml",
        "gsaas.cli.manage, gsaas.checkup.parts, gsaas.checkup.nova",
    ],
)
def test_no_process_of_a_real_cloud_imports_what_only_standalone_or_the_simulator_needs(
    modules: str, tmp_path: Path
):
    """`gsaas.wsgi.api` composes the whole API when it is imported, with the drivers that its configuration names."""
    tokens = tmp_path / "tokens.json"
    tokens.touch(mode=0o600)
    tokens.write_text("[]")
    settings = tmp_path / "gsaas.conf"
    settings.write_text(API_SETTINGS.format(folder=tmp_path))
    forbidden = ("gsaas.standalone", "gsaas.sim", "httptools")
    loaded = imported_by(modules, GSAAS_CONFIG_FILES=str(settings))
    assert set(modules.split(", ")) <= loaded
    assert not {
        module
        for module in loaded
        if module in forbidden or module.startswith(tuple(f"{name}." for name in forbidden))
    }


def imported_by(modules: str, **environment: str) -> set[str]:
    """Import *modules* (`a, b`) in a new process; return the names of all modules that it then has."""
    script = (
        f"import sys, {modules}; print(*(m for m in sys.modules if sys.modules[m] is not None))"
    )
    process = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return set(process.stdout.split())
