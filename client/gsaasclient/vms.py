# SPDX-License-Identifier: Apache-2.0
"""How to log in to a VM, as Nova and Glance describe it to its owner."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from openstack.connection import Connection

USERS = {
    "almalinux": "almalinux",
    "arch": "arch",
    "cirros": "cirros",
    "debian": "debian",
    "fedora": "fedora",
    "rhel": "cloud-user",
    "rocky": "rocky",
    "ubuntu": "ubuntu",
}
"""The user whom cloud-init makes in the distributions' own images, by the image's property `os_distro`."""


class Vm:
    """The addresses of a VM, and the user to log in as; None where its image does not say."""

    def __init__(self, fixed: list[str], floating: list[str], user: str | None) -> None:
        self.fixed = fixed
        self.floating = floating
        self.user = user


def look_up(cloud: Connection, server_id: str) -> Vm:
    """Return what Nova and Glance say of a VM. Raises `SDKException`, and what keystoneauth raises."""
    server = cloud.compute.get_server(server_id)
    image_id = (server.image or {}).get("id")
    # One that its owner has deleted since, or sees no longer, says nothing.
    image = cloud.image.find_image(image_id) if image_id else None
    described = {} if image is None else image.to_dict(original_names=True)
    return describe(server.addresses or {}, {**described, **(described.get("properties") or {})})


def describe(addresses: Mapping[str, Iterable[Any]], properties: Mapping[str, Any]) -> Vm:
    """Return a VM with these *addresses*, which are Nova's, by network, and its image's *properties*."""
    every = [each for of_network in addresses.values() for each in of_network]
    floating = [each["addr"] for each in every if each.get("OS-EXT-IPS:type") == "floating"]
    fixed = [each["addr"] for each in every if each["addr"] not in floating]
    distribution = str(properties.get("os_distro") or "").lower()
    return Vm(fixed, floating, properties.get("os_admin_user") or USERS.get(distribution))


def ssh(vm: Vm) -> tuple[str, str] | None:
    """Return the command that logs in to a VM, and what to know about it; None for one without an address."""
    addresses = [*vm.floating, *vm.fixed]
    if not addresses:
        return None
    about = "log in to it" if vm.floating else "log in to it, from where its network can be reached"
    if vm.user is None:
        return f"ssh {addresses[0]}", f"{about}; its image does not say as which user"
    return f"ssh {vm.user}@{addresses[0]}", about
