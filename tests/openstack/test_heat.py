# SPDX-License-Identifier: Apache-2.0
"""Stacks of a real Heat with `OS::GSaaS::Lease`, from the templates of doc/heat.md."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from openstack.connection import Connection
from openstack.orchestration.v1.stack import Stack

from gsaasclient import sdk
from gsaasclient.sdk.leases import Lease
from tests.openstack import heat, plain_examples, users
from tests.openstack.bed import settings, user_data
from tests.openstack.guest_client import computed, heard
from tests.openstack.servers import Servers
from tests.support import heat_templates

pytestmark = users.pytestmark

TENANT = settings.TENANTS[0]
HERE = {"image": settings.IMAGE, "flavor": settings.FAKE_FLAVOR, "network": settings.NETWORK}
"""Values for the parameters of the templates."""
TYPE = "OS::GSaaS::Lease"
SERVER = "OS::Nova::Server"
COMPUTING = yaml.safe_dump(
    {
        "heat_template_version": "2021-04-16",
        "resources": {
            "gpus": {
                "type": TYPE,
                "properties": {
                    "cgpus": {"count": 2, "kind": "cpu", "memory_mb": 256},
                    "server": {
                        "image": settings.IMAGE,
                        "flavor": settings.FLAVOR,
                        "networks": [{"network": settings.NETWORK}],
                        "user_data": user_data.COMPUTE,
                    },
                },
            }
        },
    }
)
"""A VM that really boots."""
WITHOUT_VM = "heat_template_version: 2021-04-16\nresources:\n  gpus:\n    type: OS::GSaaS::Lease\n"
Eventually = Callable[[Callable[[], Any]], Any]


class Stacks:
    """Stacks of the tenant."""

    def __init__(self, folder: Path, tenant: Connection, eventually: Eventually) -> None:
        self._folder = folder
        self._eventually = eventually
        self.gpus = tenant.gpu_scheduling
        self._heat = tenant.orchestration

    def close(self) -> None:
        """Delete what a test left of its stacks."""
        for stack in list(self._heat.stacks()):
            self._heat.delete_stack(
                stack, ignore_missing=True
            )  # Heat may still list one that is gone
        self._eventually(lambda: list(self._heat.stacks()) == [])

    def create(self, name: str, template: str) -> Stack:
        """Create a stack and wait for it; return it. The template is a file's name, or its text."""
        text = heat_templates.templates().get(template, template)
        path = self.write(name, text)
        known = [item for item in HERE.items() if f"{{get_param: {item[0]}}}" in text]
        given = [word for item in known for word in ("--parameter", "=".join(item))]
        heat.openstack(TENANT, "stack", "create", "--wait", "--template", str(path), *given, name)
        return self.show(name)

    def write(self, name: str, text: str) -> Path:
        """Write the template of a stack; return its path."""
        path = self._folder / f"{name}.yaml"
        path.write_text(text)
        return path

    def find(self, name: str) -> Stack | None:
        """Return the stack; None if Heat has refused its template."""
        return cast("Stack | None", self._heat.find_stack(name))

    def update(self, name: str, parameter: str) -> Stack:
        """Update a stack with another value of a parameter and wait for it; return it."""
        changed = ("--existing", "--parameter", parameter)
        heat.openstack(TENANT, "stack", "update", "--wait", *changed, name)
        return self.show(name)

    def delete(self, name: str) -> None:
        done = heat.openstack(TENANT, "stack", "delete", "--yes", "--wait", name)
        assert done.returncode == 0, done.stdout + done.stderr

    def show(self, name: str) -> Stack:
        """Return the stack once nothing is done to it: `--wait` may have lost patience."""
        stack = self._eventually(
            lambda: (
                (stack := self._heat.get_stack(name))
                and not stack.status.endswith("IN_PROGRESS")
                and stack
            )
        )
        return cast("Stack", stack)

    def outputs(self, name: str) -> dict[str, Any]:
        return {row["output_key"]: row["output_value"] for row in self.show(name).outputs}

    def servers(self, name: str) -> list[str]:
        """Return the ids of the servers that are resources of the stack."""
        found = self._heat.resources(name)
        return [each.physical_resource_id for each in found if each.resource_type == SERVER]

    def lease(self, name: str) -> Lease:
        """Return the lease of the resource `gpus`."""
        (found,) = (each for each in self._heat.resources(name) if each.name == "gpus")
        return self.gpus.get_lease(found.physical_resource_id)


@pytest.fixture(scope="module")
def engine(cloud: None) -> Iterator[None]:
    with heat.running():
        yield


@pytest.fixture
def stacks(
    engine: None,
    taps: None,
    tmp_path: Path,
    connect: Callable[[str], Connection],
    eventually: Eventually,
) -> Iterator[Stacks]:
    """The tenant's stacks; other fixtures see that nothing is left of them: no lease, no server, no port."""
    tenant = connect(TENANT)  # its catalogue has Heat
    sdk.add_service(tenant)
    stacks = Stacks(tmp_path, tenant, eventually)
    yield stacks
    stacks.close()


def test_the_document_describes_the_type_as_heat_shows_it(engine: None):
    shown = heat.read(TENANT, "orchestration", "resource", "type", "show", TYPE)
    assert set(heat_templates.table("property")) == set(shown["properties"])
    assert set(heat_templates.table("attribute")) == set(shown["attributes"])
    for name in ("cgpus", "server", "consumer"):
        for field in shown["properties"][name]["schema"]:
            assert f"`{field}`" in heat_templates.table("property")[name]
    updated = {name for name, each in shown["properties"].items() if each["update_allowed"]}
    assert updated == {
        name
        for name, text in heat_templates.table("property").items()
        if text.endswith("Can be updated")
    }


def test_a_stack_launches_shows_renames_replaces_and_ends_a_lease(
    stacks: Stacks, tenant: Connection
):
    stack = stacks.create("training", "lease.yaml")
    assert stack.status == "CREATE_COMPLETE", stack.status_reason
    lease = stacks.lease("training")
    assert (lease.name, lease.status, lease.cgpus["memory_mb"]) == ("training", "ACTIVE", 2048)
    server = tenant.compute.get_server(lease.server["id"])
    assert (server.name, server.status) == ("training", "ACTIVE")
    outputs = stacks.outputs("training")
    assert outputs["server"] == server.id
    assert outputs["addresses"] == ["169.254.71.1:8308", "169.254.71.2:8308"]
    assert outputs["environment"] == stacks.gpus.get_lease_environment(lease)

    stack = stacks.update("training", "name=training-2")
    assert stack.status == "UPDATE_COMPLETE", stack.status_reason
    renamed = stacks.lease("training")
    assert (renamed.id, renamed.name, renamed.status) == (lease.id, "training-2", "ACTIVE")

    stack = stacks.update("training", "memory=1024")
    assert stack.status == "UPDATE_COMPLETE", stack.status_reason
    other = stacks.lease("training")
    assert (other.status, other.cgpus["memory_mb"]) == ("ACTIVE", 1024)
    assert other.id != lease.id
    assert stacks.gpus.get_lease(lease.id).status == "RELEASED"

    stacks.delete("training")
    assert stacks.gpus.get_lease(other.id).status == "RELEASED"


def test_the_vm_of_a_stack_computes_on_its_cgpus(
    stacks: Stacks, servers: Servers, tenant: Connection
):
    stack = stacks.create("computing", COMPUTING)
    assert stack.status == "CREATE_COMPLETE", stack.status_reason
    lease = stacks.lease("computing")
    server = tenant.compute.get_server(lease.server["id"])
    computed(servers.await_console(server, heard))
    stacks.delete("computing")


def test_the_user_data_may_be_a_config_of_another_resource(stacks: Stacks, admin: Connection):
    """What Nova has of it is the text of the config, not its id."""
    stack = stacks.create("configured", "configured.yaml")
    assert stack.status == "CREATE_COMPLETE", stack.status_reason
    server = admin.compute.get_server(stacks.lease("configured").server["id"])
    sent = base64.b64decode(server.user_data)
    assert b"python3-numpy" in sent
    assert b"echo the first boot" in sent
    stacks.delete("configured")


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"user_data": {"get_resource": "config"}}, "which an agent in the VM would need"),
        ({"user_data_format": "SOFTWARE_CONFIG"}, "user_data_format can only be RAW"),
        ({"user_data_update_policy": "IGNORE"}, "user_data_update_policy can only be REPLACE"),
    ],
)
def test_what_a_vm_of_a_lease_cannot_have_of_heat_is_refused(
    stacks: Stacks, properties: dict[str, Any], reason: str
):
    template = yaml.safe_load(COMPUTING)
    template["resources"]["gpus"]["properties"]["server"] |= properties
    template["resources"]["config"] = {
        "type": "OS::Heat::StructuredConfig",
        "properties": {"group": "puppet", "config": {"a": "map"}},
    }
    path = stacks.write("refused", yaml.safe_dump(template))
    done = heat.openstack(TENANT, "stack", "create", "--wait", "--template", str(path), "refused")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    found = stacks.find("refused")
    assert reason in said + (found.status_reason if found else "")


def test_a_request_that_cannot_be_had_fails_the_stack_with_gsaas_reason(stacks: Stacks):
    stack = stacks.create("huge", f"{WITHOUT_VM}    properties: {{cgpus: {{count: 100}}}}\n")
    assert stack.status == "CREATE_FAILED"
    assert "GPUs" in stack.status_reason
    assert "100" in stack.status_reason
    stacks.delete("huge")


def test_a_stack_whose_lease_has_ended_already_is_deleted(stacks: Stacks):
    stack = stacks.create("early", f"{WITHOUT_VM}    properties: {{priority: -1}}\n")
    assert stack.status == "CREATE_COMPLETE", stack.status_reason
    lease = stacks.lease("early")
    assert lease.server is None
    stacks.gpus.delete_lease(lease)
    stacks.gpus.wait_for_release(lease)
    stacks.delete("early")


def test_the_example_with_a_server_of_nova_has_cgpus(
    stacks: Stacks, tenant: Connection, eventually: Eventually
):
    stack = stacks.create("plain", plain_examples.block("Heat"))
    assert stack.status == "CREATE_COMPLETE", stack.status_reason
    (server,) = stacks.servers("plain")
    lease = eventually(
        lambda: next((each for each in stacks.gpus.leases() if each.server["id"] == server), None)
    )
    assert lease.cgpus["memory_mb"] == 2048
    eventually(lambda: stacks.gpus.get_lease(lease.id).status == "ACTIVE")
    stacks.delete("plain")
    eventually(lambda: stacks.gpus.get_lease(lease.id).status == "RELEASED")


def test_a_group_of_vms_with_cgpus_grows_and_shrinks(stacks: Stacks, eventually: Eventually):
    def has(size: int) -> bool:
        leases = list(stacks.gpus.leases())
        servers = stacks.outputs("workers")["servers"] or []
        return (
            len(leases) == size
            and {lease.status for lease in leases} == {"ACTIVE"}
            and {lease.server["id"] for lease in leases} == set(servers)
        )

    stack = stacks.create("workers", "workers.yaml")
    assert stack.status == "CREATE_COMPLETE", stack.status_reason
    assert has(2)
    for policy, size in (("more", 3), ("fewer", 2)):
        done = heat.openstack(TENANT, "stack", "resource", "signal", "workers", policy)
        assert done.returncode == 0, done.stdout + done.stderr
        eventually(lambda size=size: has(size))
    stacks.delete("workers")
