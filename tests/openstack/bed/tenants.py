# SPDX-License-Identifier: Apache-2.0
"""The tenants, and what each may use: quotas, flavors, a network with a router.

Their networks have the same name and the same addresses: what one tenant is given must hold whatever
the other one chose.
"""

from __future__ import annotations

from tests.openstack.bed import keystone, processes, rest
from tests.openstack.bed.hypervisors import FAKE_TRAIT, REAL_TRAIT
from tests.openstack.bed.settings import (
    FAKE_FLAVOR,
    FLAVOR,
    NETWORK,
    TENANT_OF_ENGINES,
    TENANTS,
    USER_OF_ENGINES,
)
from tests.openstack.bed.work import Unit

ALL = (*TENANTS, TENANT_OF_ENGINES)
FLAVORS = (
    ({"name": FLAVOR, "ram": 512, "vcpus": 1, "disk": 2}, REAL_TRAIT),
    ({"name": FAKE_FLAVOR, "ram": 64, "vcpus": 1, "disk": 1}, FAKE_TRAIT),
)
QUOTAS = {"instances": 100, "cores": 200, "ram": 65536}  # MiB of memory
ADDRESSES = "10.77.0.0/16"
GATEWAY = "10.77.0.1"
NO_NAME_SERVER = "0.0.0.0"
"""Neutron's way to say none; the one it would name cannot reach anything either."""

PATIENCE = 240


def units() -> list[Unit]:
    return [
        Unit("tenants", needs=("keystone",), prepare=add_tenants),
        Unit("flavors", needs=("nova API",), prepare=add_flavors),
        Unit("quotas", needs=("tenants", "nova API"), prepare=set_quotas),
        Unit(
            "networks",
            needs=("tenants", "neutron agents"),
            prepare=add_networks,
            finish=await_networks,
        ),
    ]


def add_tenants() -> None:
    for name in ALL:
        rest.cloud().ensure("identity", "projects", {"name": name, "domain_id": "default"})
        keystone.add_user(name, name, "member")
    keystone.add_user(USER_OF_ENGINES, keystone.SERVICE_PROJECT, *keystone.SERVICE_ROLES)


def add_flavors() -> None:
    cloud = rest.cloud()
    for wanted, trait in FLAVORS:
        flavor = cloud.ensure("compute", "flavors", wanted)
        specs = {"extra_specs": {f"trait:{trait}": "required"}}
        cloud.call("POST", "compute", f"flavors/{flavor['id']}/os-extra_specs", specs)


def set_quotas() -> None:
    for project in _projects().values():
        rest.cloud().call("PUT", "compute", f"os-quota-sets/{project}", {"quota_set": QUOTAS})


def add_networks() -> None:
    cloud = rest.cloud()
    for project in _projects().values():
        own = {"name": NETWORK, "project_id": project}
        network = cloud.ensure("network", "networks", own, project_id=project)
        subnet = cloud.ensure(
            "network",
            "subnets",
            {
                **own,
                "network_id": network["id"],
                "ip_version": 4,
                "cidr": ADDRESSES,
                "gateway_ip": GATEWAY,
                "dns_nameservers": [NO_NAME_SERVER],
            },
            project_id=project,
        )
        # Without a gateway that answers, a server's packets to anywhere else end at ARP.
        router = cloud.ensure("network", "routers", own, project_id=project)
        if not cloud.find("network", "ports", device_id=router["id"]):
            cloud.call(
                *("PUT", "network", f"routers/{router['id']}/add_router_interface"),
                {"subnet_id": subnet["id"]},
            )


def await_networks() -> None:
    """Return once every router and every DHCP server has its port wired."""
    processes.wait_until(_wired, PATIENCE, "the tenants' routers and DHCP servers have ports")


def _wired() -> bool:
    ports = [
        port
        for project in _projects().values()
        for port in rest.cloud().find("network", "ports", project_id=project)
        if port["device_owner"] in ("network:router_interface", "network:dhcp")
    ]
    return len(ports) >= 2 * len(ALL) and all(port["status"] == "ACTIVE" for port in ports)


def _projects() -> dict[str, str]:
    listed = rest.cloud().find("identity", "projects")
    return {project["name"]: project["id"] for project in listed if project["name"] in ALL}
