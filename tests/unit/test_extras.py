# SPDX-License-Identifier: Apache-2.0
"""The extras of gsaas: each one installs what its process imports, and nothing more.

A new interpreter imports the modules of which a process is composed, with the drivers that it loads by name. Which
distribution a file belongs to, and what a distribution requires, is read from what is installed.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import distribution, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]

PROCESSES = {
    "rodvr": ("gsaas.cli.manage", "gsaas.cli.rodvr", "gsaas.setup.run"),
    "monitor": (
        "gsaas.cli.manage",
        "gsaas.cli.monitor",
        "gsaas.setup.run",
        "gsaas.gpu_host.sources.declared",
        "gsaas.gpu_host.sources.nvml",
        "gsaas.prove.facts",
        "gsaas.prove.gpu_host",
        "gsaas.prove.path",
        "gsaas.remoting.lupine",
        "gsaas.remoting.native",
        "gsaas.remoting.rcuda",
        "h2.connection",  # imported when it asks the first daemon of LUPINE how it is
    ),
    "api": ("gsaas.wsgi.api", "gsaas.limits.keystone"),
    "engine": (
        "gsaas.cli.engine",
        "gsaas.cli.manage",
        "gsaas.cli.status",
        "gsaas.checkup.nova",
        "gsaas.checkup.parts",
        "gsaas.cloud.nova.cloud",
        "gsaas.db.migration",
        "gsaas.limits.keystone",
        "gsaas.limits.registered",
        "gsaas.setup.services",
        "gsaas.remoting.lupine",
        "gsaas.remoting.native",
        "gsaas.remoting.rcuda",
    ),
    "standalone": (
        "gsaas.cli.standalone",
        "gsaas.standalone.demo.__main__",
        "gsaas.standalone.service",
    ),
    "sim": (
        "gsaas.cli.sim",
        "gsaas.sim.cloud",
        "gsaas.sim.importers",
        "gsaas.sim.plan",
        "gsaas.sim.report.results",
        "gsaas.sim.scenario",
        "pyarrow.parquet",  # imported when it reads or writes such a file
    ),
    "tvm": ("gsaas.gpu_host.servers.tvm", "gsaas.standalone.demo.matrices"),
    "mysql": ("pymysql",),
    "postgresql": ("psycopg",),
}
"""Extra -> what the process that it is named after, or the driver of SQLAlchemy, imports."""

OF_A_CLOUD = ("rodvr", "monitor", "api", "engine")
"""The extras of processes of a real cloud."""
OTHERS = ("gsaas.standalone", "gsaas.sim", "waitress")
"""What only standalone or the simulator needs."""
BELOW_OTHERS = tuple(f"{name}." for name in OTHERS)

CONTROLLERS_ONLY = {
    "sqlalchemy",
    "flask",
    "openstacksdk",
    "oslo-db",
    "alembic",
    "keystonemiddleware",
}

API_SETTINGS = """
[DEFAULT]
transport_url = rabbit://gsaas:secret@127.0.0.1:1/
[database]
connection = sqlite://
[api]
auth_strategy = keystone
[keystone_authtoken]
auth_type = none
[engine]
cloud = nova
[remoting]
driver = rcuda
[service_user]
auth_type = none
endpoint = http://127.0.0.1:1
"""

PROGRAM = """
import importlib, json, sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name in missing:
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

missing, modules = set(sys.argv[1].split()), sys.argv[2:]
before = set(sys.modules)
sys.meta_path.insert(0, NotInstalled())
for module in modules:
    importlib.import_module(module)
new = {name.partition(".")[0] for name in set(sys.modules) - before}
loaded = [name for name in sys.modules if sys.modules[name] is not None]
print(json.dumps([sorted(new), loaded]))
"""

BARE = PROGRAM.partition("for module in modules")[0]
"""The beginning of `PROGRAM`: what follows finds only what is installed."""
NEEDED = {
    "engine": "engine",
    "manage": "engine",
    "monitor": "monitor",
    "rodvr": "rodvr",
    "sim": "sim",
    "standalone": "standalone",
    "status": "engine",
}
"""Program -> the extra that brings its libraries."""
START = """
from gsaas.cli import programs
program, *sys.argv[1:] = modules
sys.exit(getattr(programs, program)())
"""


def imported_with(root: str, *modules: str, **environment: str) -> tuple[set[str], set[str]]:
    """Import *modules* in a new interpreter that finds only what `pip install ROOT` installs.

    Returns the distributions that it then has read from, and the names of all modules that it then has. Libraries
    import some others only where they find them.
    """
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, missing_with(root), *modules],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    new, there = json.loads(process.stdout.splitlines()[-1])
    return set().union(*(providers().get(name, ()) for name in new)), set(there)


@functools.cache
def providers() -> dict[str, set[NormalizedName]]:
    """Return the distributions here that bring each top-level module."""
    return {
        name: set(map(canonicalize_name, here)) for name, here in packages_distributions().items()
    }


@functools.cache
def missing_with(root: str) -> str:
    """Return the top-level modules that `pip install ROOT` does not install."""
    installed = installed_with(root)
    return " ".join(name for name, here in providers().items() if here.isdisjoint(installed))


def required_by(name: str, extra: str = "") -> Iterator[Requirement]:
    """Yield what a distribution requires here, with one of its extras or without any."""
    for line in requires(name) or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def installed_with(root: str) -> set[str]:
    """Return all distributions that `pip install ROOT` installs, by the metadata of those that are here."""
    found: set[str] = set()
    asked: set[tuple[str, str]] = set()
    waiting = [Requirement(root)]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        found.add(name)
        for extra in ("", *requirement.extras):
            if (name, extra) not in asked:
                asked.add((name, extra))
                waiting.extend(required_by(name, extra))
    return found


def imported(extra: str) -> tuple[set[str], set[str]]:
    """Return what the process of *extra* imports, as `imported_with` does, where it finds only what this installs."""
    with tempfile.NamedTemporaryFile("w") as settings:
        settings.write(API_SETTINGS)
        settings.flush()
        root, modules = f"gsaas[{extra}]", PROCESSES[extra]
        return imported_with(root, *modules, GSAAS_CONFIG_FILES=settings.name)


def test_every_extra_is_tested() -> None:
    lines = [Requirement(line) for line in requires("gsaas") or ()]
    named = {extra for extra in PROCESSES for line in lines if f'extra == "{extra}"' in str(line)}
    every = {
        str(line.marker).rpartition('"')[0].rpartition('"')[2] for line in lines if line.marker
    }
    assert named == every == set(PROCESSES)


@pytest.mark.parametrize("extra", PROCESSES)
def test_a_process_starts_with_what_its_extra_installs_and_imports_all_that_it_names(
    extra: str,
) -> None:
    """An import takes seconds, so what one process shows is one test."""
    always = {canonicalize_name(requirement.name) for requirement in required_by("gsaas")}
    named = {canonicalize_name(requirement.name) for requirement in required_by("gsaas", extra)}
    read, modules = imported(extra)
    assert named - always
    assert named - always <= read
    if extra in OF_A_CLOUD:
        assert always <= read
        assert not {name for name in modules if name in OTHERS or name.startswith(BELOW_OTHERS)}
    # oslo.service installs it; importing it changes how every thread of the process waits.
    assert "eventlet" not in modules


def test_every_program_is_started_with_or_without_its_libraries() -> None:
    points = distribution("gsaas").entry_points.select(group="console_scripts")
    scripts = {point.name for point in points}
    assert {f"gsaas-{program}" for program in NEEDED} == scripts


@pytest.mark.parametrize("program", NEEDED)
def test_a_program_without_its_libraries_names_the_extra_that_brings_them(
    program: str, tmp_path: Path
) -> None:
    options = ["--help"]
    if program == "manage":  # on a GPU host it proves the host, without a database
        options = ["db", "upgrade"]
    if program == "standalone":  # it imports them when it starts, which takes root
        if os.geteuid() != 0:
            pytest.skip("gsaas-standalone says first that it needs root")
        options = [f"--state-dir={tmp_path}"]
    found = subprocess.run(
        [sys.executable, "-c", BARE + START, missing_with("gsaas"), program, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    said = rf"gsaas-{program}: the library \w+ is not installed; this program needs "
    said += rf"gsaas\[{NEEDED[program]}\]: install that into {re.escape(sys.prefix)}\n"
    assert re.fullmatch(said, found.stderr), found.stderr
    assert found.returncode == (255 if program == "status" else 1)


@pytest.mark.parametrize("extra", ["rodvr", "monitor"])
def test_an_agent_needs_nothing_of_a_controller(extra: str) -> None:
    assert not installed_with(f"gsaas[{extra}]") & CONTROLLERS_ONLY


def client_modules() -> list[str]:
    return [
        ".".join(path.relative_to(REPOSITORY / "client").with_suffix("").parts)
        for path in (REPOSITORY / "client" / "gsaasclient").rglob("*.py")
    ]


def is_of_openstack(module: str) -> bool:
    """Whether *module* is of the commands `openstack gpu …`, which the extra osc is for."""
    return module.startswith("gsaasclient.osc") and not module.endswith(".plugin")


def test_the_client_starts_with_its_own_requirements_and_without_the_service() -> None:
    modules = [module for module in client_modules() if not is_of_openstack(module)]
    read, _ = imported_with(
        "python-gsaasclient", *modules, "openstack.config", "openstack.connection"
    )
    assert "python-gsaasclient" in read
    assert not {"gsaas", "python-openstackclient"} & installed_with("python-gsaasclient")


def test_the_commands_of_openstack_start_with_what_their_extra_installs() -> None:
    modules = [module for module in client_modules() if is_of_openstack(module)]
    read, _ = imported_with("python-gsaasclient[osc]", *modules, "openstackclient.shell")
    assert {"python-openstackclient", "osc-lib"} <= read
    assert "gsaas" not in installed_with("python-gsaasclient[osc]")
