# SPDX-License-Identifier: Apache-2.0
"""GSaaS's Tempest plug-in passes on a real OpenStack. stestr says what passed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from openstack.connection import Connection

from tests.openstack import tempest

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(1800)]

SCENARIO = f"{tempest.PACKAGE}.tests.scenario."
GUESTS = "GuestsTest"
"""The tests of the plug-in that VMs run."""


@pytest.fixture(scope="module", autouse=True)
def installed(cloud: None) -> None:
    tempest.install()


def test_every_test_has_an_id_of_its_own():
    checked = subprocess.run(
        [
            tempest.program("check-uuid"),
            f"--package={tempest.PACKAGE}",
            f"--libpath={tempest.PLUGIN}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr


def test_tempest_finds_the_plugin_and_its_options(tmp_path: Path):
    listed = subprocess.run(
        [tempest.program("tempest"), "list-plugins"], capture_output=True, text=True, check=True
    )
    assert "gsaas_tempest_plugin.plugin:GsaasTempestPlugin" in listed.stdout
    sample = subprocess.run(
        [tempest.program("oslo-config-generator"), "--namespace=tempest.config"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\n[gpu_scheduling]\n" in sample.stdout
    assert "\n#fill_cloud = false\n" in sample.stdout


@pytest.mark.parametrize("guests", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_all_tests_pass_with_users_that_tempest_makes(
    admin: Connection, tmp_path: Path, guests: bool
):
    """Those from inside two VMs take longest; that a VM reaches its own cGPUs alone, `test_end_to_end` shows, too."""
    before = {project.id for project in admin.identity.projects()}
    workspace = tempest.Workspace(
        tmp_path / "workspace", admin, gpu_scheduling={"guest_reports": guests}
    )
    results = workspace.run("--concurrency=2")
    good = {"success"} if guests else {"success", "skip"}
    failed = {name: result.said for name, result in results.items() if result.status not in good}
    # What a test says ends with its traceback; before that come hundreds of lines about requests.
    assert not failed, "\n\n".join(f"{name}\n{said[-2000:]}" for name, said in failed.items())
    passed = {name for name, result in results.items() if result.status == "success"}
    assert passed == {name for name in tempest.expected() if guests or f".{GUESTS}." not in name}
    assert {project.id for project in admin.identity.projects()} == before


def test_tests_pass_with_accounts_that_an_operator_made(admin: Connection, tmp_path: Path):
    """The two tenants of this cloud have no reader, and no VM is booted a second time."""
    accounts = tmp_path / "accounts.yaml"
    tempest.accounts(accounts)
    workspace = tempest.Workspace(
        tmp_path / "workspace",
        admin,
        auth={"use_dynamic_credentials": False, "test_accounts_file": accounts},
        gpu_scheduling={"fill_cloud": False, "cgpu_quota": -1},
    )
    results = workspace.run("--exclude-regex", r"\.scenario\.", "--concurrency=1")
    statuses = {name: result.status for name, result in results.items()}
    skipped = {
        name.rpartition(".")[2].removesuffix(")"): result.said
        for name, result in results.items()
        if result.status == "skip"
    }
    assert skipped == {
        "FullCloudTest": "the cloud may not be filled: [gpu_scheduling]fill_cloud",
        "QuotasTest": "projects have no limit: [gpu_scheduling]cgpu_quota",
        "RolesTest": "the configured accounts have none with the role reader",
    }
    passed = {
        name
        for name in tempest.expected()
        if not name.startswith(SCENARIO) and name.split(".")[-2] not in skipped
    }
    assert {name for name, status in statuses.items() if status == "success"} == passed
    assert set(statuses.values()) == {"success", "skip"}
