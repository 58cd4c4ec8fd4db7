# SPDX-License-Identifier: Apache-2.0
"""What a server gets whose owner names no image, flavor or network, as a real Glance, Nova and Neutron have them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from openstack.connection import Connection

from gsaas import exceptions
from gsaas.cloud.nova.cloud import NovaCloud
from gsaas.context import RequestContext
from tests.openstack.bed import settings
from tests.openstack.launches import Launches, caller

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(900)]

Cloud = Callable[..., NovaCloud]


@pytest.fixture
def set_up(launches: Launches) -> Cloud:
    """Returns a cloud whose operator has set these defaults."""

    def set_up(**options: str) -> NovaCloud:
        for name, value in options.items():
            launches.conf.set_override(f"default_{name}", value, "nova")
        return NovaCloud.configured(launches.conf)

    return set_up


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def missing(cloud: NovaCloud, owner: RequestContext, **fields: Any) -> dict[str, list[str]]:
    """Return what a launch has to name, and the names to choose from."""
    with pytest.raises(exceptions.ServerIncomplete) as refused:
        cloud.complete(owner, fields)
    return {each["field"]: each["names"] for each in refused.value.facts["details"]["missing"]}


def test_defaults_are_found_by_their_names_and_pass_the_check(
    set_up: Cloud, owner: RequestContext, tenant: Connection
):
    configured = set_up(
        image=settings.EMPTY_IMAGE, flavor=settings.FAKE_FLAVOR, network=settings.NETWORK
    )
    completed, notes = configured.complete(owner, {"name": "vm"})
    assert completed == {
        "name": "vm",
        "imageRef": tenant.image.find_image(settings.EMPTY_IMAGE).id,
        "flavorRef": tenant.compute.find_flavor(settings.FAKE_FLAVOR).id,
        "networks": [{"uuid": tenant.network.find_network(settings.NETWORK).id}],
    }
    assert notes == ["the cloud chose: image empty, flavor fake, network private"]
    assert configured.check(owner, completed) == []


def test_what_has_no_default_is_named_at_once_with_what_the_project_may_use(
    set_up: Cloud, owner: RequestContext
):
    named = missing(set_up(network="no such network"), owner)
    assert list(named) == ["imageRef", "flavorRef", "networks"]
    assert {settings.IMAGE, settings.EMPTY_IMAGE} <= set(named["imageRef"])
    assert f"{settings.IMAGE}-kernel" not in named["imageRef"]  # nothing boots from it alone
    smallest_first = [settings.FAKE_FLAVOR, settings.FLAVOR]
    assert [name for name in named["flavorRef"] if name in smallest_first] == smallest_first
    assert settings.NETWORK in named["networks"]


def test_a_projects_own_image_with_the_property_replaces_the_public_one_for_it_alone(
    set_up: Cloud,
    owner: RequestContext,
    admin: Connection,
    tenant: Connection,
    connect: Callable[[str], Connection],
    cleanup: ExitStack,
):
    key = unique("gpu")
    images = {}
    for user, visibility in ((tenant, "private"), (admin, "public")):  # the newest one is public
        image = user.image.create_image(
            unique(visibility),
            data=b"\0" * 1024,
            disk_format="raw",
            container_format="bare",
            visibility=visibility,
            **{key: "yes"},
        )
        cleanup.callback(user.image.delete_image, image.id)
        images[visibility] = image.id
    configured = set_up(
        image=f"property:{key}=yes", flavor=settings.FAKE_FLAVOR, network=settings.NETWORK
    )
    of_the_other = caller(connect(settings.TENANTS[1]))
    assert configured.complete(owner, {})[0]["imageRef"] == images["private"]
    assert configured.complete(of_the_other, {})[0]["imageRef"] == images["public"]


def test_a_flavor_is_found_by_an_extra_spec(
    set_up: Cloud,
    owner: RequestContext,
    tenant: Connection,
    gpu_flavor: Callable[..., str],
):
    key = unique("default")
    name = gpu_flavor(settings.FAKE_FLAVOR, {key: "yes"})
    configured = set_up(
        image=settings.IMAGE, flavor=f"property:{key}=yes", network=settings.NETWORK
    )
    chosen = configured.complete(owner, {})[0]["flavorRef"]
    assert chosen == tenant.compute.find_flavor(name).id


def test_a_network_is_found_by_a_tag_of_the_project_and_not_by_one_of_a_foreign_network(
    set_up: Cloud,
    owner: RequestContext,
    tenant: Connection,
    connect: Callable[[str], Connection],
    cleanup: ExitStack,
):
    tag, named = unique("gpus"), {"imageRef": "i", "flavorRef": "f"}
    other = connect(settings.TENANTS[1])
    foreign = other.network.create_network(name=unique("foreign"))
    cleanup.callback(other.network.delete_network, foreign)
    other.network.set_tags(foreign, [tag])
    shared = other.network.create_rbac_policy(
        object_type="network",
        object_id=foreign.id,
        action="access_as_shared",
        target_project_id=owner.project_id,
    )
    cleanup.callback(other.network.delete_rbac_policy, shared)
    configured = set_up(network=f"tag:{tag}")
    assert foreign.name in missing(configured, owner, **named)["networks"]

    own = tenant.network.create_network(name=unique("own"))
    cleanup.callback(tenant.network.delete_network, own)
    tenant.network.set_tags(own, [tag])
    assert configured.complete(owner, named)[0]["networks"] == [{"uuid": own.id}]
    by_id = set_up(network=foreign.id)
    assert by_id.complete(owner, named)[0]["networks"] == [{"uuid": foreign.id}]


def test_neutron_makes_a_network_where_it_can_for_a_project_that_has_none(
    set_up: Cloud, admin: Connection, cleanup: ExitStack
):
    project = admin.identity.create_project(name=unique("new"), domain_id="default")
    cleanup.callback(admin.identity.delete_project, project)
    user = admin.current_user_id
    for role in ("member", "admin"):
        found = admin.identity.find_role(role)
        admin.identity.assign_project_role_to_user(project, user, found)
    newcomer = caller(admin.connect_as_project(project))
    named, configured = {"imageRef": "i", "flavorRef": "f"}, set_up()
    assert missing(configured, newcomer, **named) == {"networks": []}

    outside = admin.network.create_network(
        name=unique("outside"), is_router_external=True, is_default=True
    )
    cleanup.callback(admin.network.delete_network, outside)
    admin.network.create_subnet(network_id=outside.id, ip_version=4, cidr="10.79.0.0/24")
    pool = admin.network.create_subnet_pool(
        name=unique("pool"), prefixes=["10.80.0.0/16"], default_prefix_length=24, is_shared=True
    )
    cleanup.callback(admin.network.delete_subnet_pool, pool)
    admin.network.update_subnet_pool(pool, is_default=True)
    completed, notes = configured.complete(newcomer, named)
    assert completed["networks"] == "auto"
    assert notes == ["the cloud chose: network that Neutron makes for your project"]
    assert list(admin.network.networks(project_id=project.id)) == []  # a dry run makes nothing
