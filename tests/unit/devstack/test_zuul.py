# SPDX-License-Identifier: Apache-2.0
""".zuul.yaml: what it names exists, here or in OpenStack's jobs that it builds on."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.devstack.node import SOURCE

pytestmark = pytest.mark.slow

INHERITED = {"IMAGE_URLS"}
"""Settings of DevStack itself."""


def items(kind: str) -> list[dict[str, Any]]:
    listed = yaml.safe_load((SOURCE / ".zuul.yaml").read_text())
    assert {len(item) for item in listed} == {1}
    return [item[kind] for item in listed if kind in item]


def job(name: str) -> dict[str, Any]:
    (found,) = (job for job in items("job") if job["name"] == name)
    return found


@pytest.fixture
def devstack() -> dict[str, Any]:
    return job("gsaas-devstack-tempest")


def settings() -> set[str]:
    """Return the variables that the plug-in gives a default."""
    return set(re.findall(r"^(\w+)=", (SOURCE / "devstack" / "settings").read_text(), re.MULTILINE))


def test_every_job_has_a_name_of_its_own_and_runs_in_check_and_gate() -> None:
    names = [job["name"] for job in items("job")]
    assert len(set(names)) == len(names)
    (project,) = items("project")
    assert set(project) == {"check", "gate"}
    for pipeline in project.values():
        assert sorted(pipeline["jobs"]) == sorted(names)


def test_the_playbooks_exist_and_run_commands_of_dev() -> None:
    usage = (SOURCE / "dev").read_text()
    for name in ("gsaas-lint", "gsaas-quick-tests"):
        (play,) = yaml.safe_load((SOURCE / job(name)["run"]).read_text())
        (task,) = play["tasks"]
        assert task["ansible.builtin.command"]["cmd"] == "./dev {{ dev_arguments }}"
        assert re.search(rf"^  {job(name)['vars']['dev_arguments']} ", usage, re.MULTILINE)


def test_jobs_pass_over_changes_of_files_that_there_are() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=SOURCE, capture_output=True, check=True)
    files = listed.stdout.decode().splitlines()
    for each in items("job"):
        for pattern in each.get("irrelevant-files", []):
            assert [file for file in files if re.match(pattern, file)], pattern


def test_it_sets_variables_that_the_plugin_has(devstack: dict[str, Any]) -> None:
    given = devstack["vars"]
    assert set(given["devstack_localrc"]) - INHERITED <= settings()
    for phase in given["devstack_local_conf"].values():
        assert {file.removeprefix("$") for file in phase} <= settings()


def test_vms_get_an_image_that_devstack_fetches(devstack: dict[str, Any]) -> None:
    local = devstack["vars"]["devstack_localrc"]
    names = [Path(url.strip()).stem for url in local["IMAGE_URLS"].split(",")]
    assert local["GSAAS_TEMPEST_IMAGE"] in names


def test_it_enables_every_service_of_the_plugin(devstack: dict[str, Any]) -> None:
    library = (SOURCE / "devstack" / "lib" / "gsaas").read_text()
    found = re.search(r"^GSAAS_SERVICES=\((.*)\)$", library, re.MULTILINE)
    assert found
    services = devstack["vars"]["devstack_services"]
    assert {name for name, enabled in services.items() if enabled} == set(found[1].split())


def test_it_installs_and_runs_the_tests_of_the_plugin(devstack: dict[str, Any]) -> None:
    given = devstack["vars"]
    (plugin,) = given["tempest_plugins"]
    name, _, folder = plugin.partition("/")
    assert name in given["devstack_plugins"]
    assert (SOURCE / folder / "setup.cfg").exists()
    found = full_names(SOURCE / folder)
    assert found
    assert all(re.search(given["tempest_test_regex"], test) for test in found)


def test_no_quota_keeps_the_tests_from_filling_the_cloud(devstack: dict[str, Any]) -> None:
    given = devstack["vars"]
    quota = given["devstack_local_conf"]["post-config"]["$GSAAS_CONF"]["quotas"]["cgpus"]
    # While all GPUs are in use, two more wait.
    assert given["devstack_localrc"]["GSAAS_GPUS"] + 2 <= quota


def full_names(folder: Path) -> list[str]:
    """Return the names of the tests in *folder*."""
    return [
        f"{'.'.join(path.relative_to(folder).with_suffix('').parts)}.{node.name}"
        for path in folder.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
