# SPDX-License-Identifier: Apache-2.0
"""The tools of others can be installed, each beside what GSaaS adds to it, if anything.

This takes minutes, and nothing is done twice: continuous integration runs it while the cloud is in use by other tests.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.openstack import ansible, heat, horizon, tempest
from tests.openstack.bed import commands

pytestmark = [
    pytest.mark.openstack,
    pytest.mark.timeout(1800),
    pytest.mark.users,
    pytest.mark.usefixtures("cloud"),
]


@pytest.mark.parametrize(
    ("tool", "modules"),
    [
        (tempest, "tempest, gsaas_tempest_plugin"),
        (heat, "heat, gsaas_heat"),
        (horizon, "openstack_dashboard, gsaas_dashboard"),
        (ansible, "ansible_collections.openstack.cloud"),
    ],
    ids=["tempest", "heat", "horizon", "ansible"],
)
def test_a_tool_is_installed_beside_what_gsaas_adds(tool: ModuleType, modules: str):
    tool.install()
    commands.run(tool.program("python"), "-c", f"import {modules}")
