# SPDX-License-Identifier: Apache-2.0
"""The phase test-config: DevStack's Tempest gets GSaaS's tests and options."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.unit.devstack.node import COMPUTE_HOST, CONTROLLER, SOURCE, STACK, Node

pytestmark = pytest.mark.slow

TEMPEST = """
OFFLINE=False
TEMPEST_DIR={root}/tempest
TEMPEST_CONFIG={root}/tempest/etc/tempest.conf
function set_tempest_venv_constraints {{ echo tempest==47.0.0 >"$1"; note constraints "$1"; }}
function openstack {{ note openstack "$@"; [[ "${{*: -1}}" != missing ]] && echo "id-of-${{*: -1}}"; }}
"""
"""What DevStack's own part of Tempest has defined by then."""

PIP = """\
#!/bin/bash
echo "tempest-pip $* with $(cat "$3")" >>"$JOURNAL"
"""


def node_with_tempest(root: Path, local: str = "", *services: str) -> Node:
    pip = root / "tempest" / ".tox" / "tempest" / "bin" / "pip"
    pip.parent.mkdir(parents=True)
    pip.write_text(PIP)
    pip.chmod(0o755)
    (root / "tempest" / "etc").mkdir()
    services = services or (*CONTROLLER, *COMPUTE_HOST, "tempest")
    return Node(root, services, TEMPEST.format(root=shlex.quote(str(root))) + local)


def options(node: Node) -> dict[str, dict[str, str]]:
    return node.written(node.root / "tempest" / "etc" / "tempest.conf")


def test_the_plugin_is_installed_beside_tempest_under_tempests_constraints(tmp_path: Path) -> None:
    node = node_with_tempest(tmp_path)
    node.run(*STACK)
    (constraints,) = node.did("constraints")
    assert node.did("tempest-pip") == [
        f"install -c {constraints} -e {SOURCE}/tempest with tempest==47.0.0"
    ]
    assert not Path(constraints).exists()


def test_tempest_may_fill_a_devstack_and_boots_what_it_boots_elsewhere(tmp_path: Path) -> None:
    node = node_with_tempest(tmp_path)
    node.run(*STACK)
    assert options(node) == {
        "service_available": {"gsaas": "True"},
        "gpu_scheduling": {"region": "RegionOne", "fill_cloud": "True", "cgpu_quota": "16"},
    }
    assert not node.did("openstack")


def test_tempest_knows_what_gsaas_is_configured_with(tmp_path: Path) -> None:
    node = node_with_tempest(tmp_path, "GSAAS_REMOTING_DRIVER=lupine GSAAS_INVENTORY=/srv/gpus")
    node.run("stack post-config")
    with node.conf.open("a") as conf:
        conf.write("[quotas]\ncgpus = 24\n[rodvr]\nmasked_prefix = 198.18.0.0/24\n")
    node.run("stack test-config")
    written = options(node)["gpu_scheduling"]
    assert written["cgpu_quota"] == "24"
    assert written["masked_prefix"] == "198.18.0.0/24"
    assert written["masked_port"] == "14833"


def test_an_image_with_cloud_init_lets_vms_report(tmp_path: Path) -> None:
    node = node_with_tempest(tmp_path, "GSAAS_TEMPEST_IMAGE=debian GSAAS_TEMPEST_FLAVOR=ds1G")
    node.run(*STACK)
    written = options(node)["gpu_scheduling"]
    assert written["guest_reports"] == "True"
    assert (written["image_ref"], written["flavor_ref"]) == ("id-of-debian", "id-of-ds1G")


def test_an_image_that_there_is_not_ends_it_in_a_sentence(tmp_path: Path) -> None:
    node = node_with_tempest(tmp_path, "GSAAS_TEMPEST_IMAGE=missing")
    done = node.run(*STACK, check=False)
    assert done.returncode
    assert "there is no image named missing" in done.stderr


def test_a_node_that_only_tests_has_no_configuration_of_gsaas(tmp_path: Path) -> None:
    node = node_with_tempest(tmp_path, "", "tempest")
    node.run(*STACK)
    assert not node.conf.exists()
    assert options(node)["gpu_scheduling"]["cgpu_quota"] == "16"


def test_offline_nothing_is_installed(tmp_path: Path) -> None:
    node = node_with_tempest(tmp_path, "OFFLINE=True")
    node.run("stack post-config", "stack test-config")
    assert not node.did("tempest-pip")
    assert options(node)


def test_without_tempest_nothing_is_done(tmp_path: Path) -> None:
    node = node_with_tempest(tmp_path, "", *CONTROLLER)
    node.run(*STACK)
    assert not node.did("tempest-pip")
    assert not (tmp_path / "tempest" / "etc" / "tempest.conf").exists()
