# SPDX-License-Identifier: Apache-2.0
"""DevStack's Horizon gets GSaaS's panels, and its Heat the resource OS::GSaaS::Lease, where these run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.unit.devstack.node import CONTROLLER, SOURCE, STACK, Node

pytestmark = pytest.mark.slow

PANELS = {path.name for path in (SOURCE / "dashboard").glob("gsaas_dashboard/enabled/_*_panel.py")}
RESOURCES = SOURCE / "heat" / "gsaas_heat" / "resources"
CLIENT = [f"{SOURCE}/launcher", f"{SOURCE}/client"]


def enabled(root: Path) -> Path:
    """Return Horizon's folder for panels, as a DevStack node has it."""
    folder = root / "horizon" / "openstack_dashboard" / "local" / "enabled"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def heat_conf(root: Path) -> Path:
    return root / "heat" / "heat.conf"


def node_with_heat(root: Path, *services: str) -> Node:
    return Node(root, (*services, "h-eng"), f"HEAT_CONF={shlex.quote(str(heat_conf(root)))}")


def test_horizon_gets_the_panels(tmp_path: Path) -> None:
    folder = enabled(tmp_path)
    node = Node(tmp_path, (*CONTROLLER, "horizon"))
    node.run(*STACK)
    installed = node.did("setup_develop")
    assert installed == [*CLIENT, f"{SOURCE} api,engine,mysql", f"{SOURCE}/dashboard"]
    assert {path.name for path in folder.iterdir()} == PANELS != set()


def test_horizon_may_be_on_a_node_without_gsaas(tmp_path: Path) -> None:
    folder = enabled(tmp_path)
    node = Node(tmp_path, ("horizon",))
    node.run(*STACK)
    assert node.did("setup_develop") == [*CLIENT, f"{SOURCE}/dashboard"]
    assert {path.name for path in folder.iterdir()} == PANELS


def test_unstack_takes_our_panels_from_horizon_and_no_others(tmp_path: Path) -> None:
    folder = enabled(tmp_path)
    (folder / "_1610_project_orchestration_panel.py").touch()
    node = Node(tmp_path, (*CONTROLLER, "horizon"))
    node.run(*STACK)
    node.run("unstack")
    assert [path.name for path in folder.iterdir()] == ["_1610_project_orchestration_panel.py"]


def test_heat_gets_the_resource(tmp_path: Path) -> None:
    node = node_with_heat(tmp_path, *CONTROLLER)
    node.run(*STACK)
    installed = node.did("setup_develop")
    assert installed == [*CLIENT, f"{SOURCE} api,engine,mysql", f"{SOURCE}/heat"]
    assert node.written(heat_conf(tmp_path)) == {"DEFAULT": {"plugin_dirs": str(RESOURCES)}}
    assert (RESOURCES / "lease.py").exists()


def test_heat_keeps_the_plugins_of_others_and_gets_ours_once(tmp_path: Path) -> None:
    heat_conf(tmp_path).parent.mkdir()
    heat_conf(tmp_path).write_text("[DEFAULT]\nplugin_dirs = /opt/stack/data/heat/plugins\n")
    node = node_with_heat(tmp_path)
    node.run(*STACK)
    node.run(*STACK)
    written = node.written(heat_conf(tmp_path))["DEFAULT"]["plugin_dirs"]
    assert written == f"/opt/stack/data/heat/plugins,{RESOURCES}"


def test_without_them_nothing_is_done(tmp_path: Path) -> None:
    folder = enabled(tmp_path)
    node = Node(tmp_path, CONTROLLER)
    node.run(*STACK, "unstack")
    assert not list(folder.iterdir())
    assert node.did("setup_develop") == [*CLIENT, f"{SOURCE} api,engine,mysql"]
