"""Would Nova make this server for this caller? Asked before anything is claimed or made.

Each check asks one service, with the caller's own token, about what the caller named; so it sees what the caller may
see and no more. The checks run side by side: the slowest decides how long a launch waits for them. None of them is
a promise, as things change; Nova is asked again when the server is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gsaas import exceptions
from gsaas.cloud.nova.clients import Clients, Refused, asking, at_once
from gsaas.cloud.nova.requests import AUTO

Fields = Mapping[str, Any]
"""What `gsaas.cloud.nova.requests.fields` returned."""


def check(caller: Clients, project_id: str, fields: Fields) -> None:
    """Raise `ServerRefused` with the first reason why not; `CloudUnavailable` if a service does not answer."""
    questions = [lambda: _flavor(caller, fields["flavorRef"]), lambda: _limits(caller)]
    if fields.get("imageRef"):
        questions.append(lambda: _image(caller, fields["imageRef"]))
    others = [lambda: _networks(caller, project_id, fields["networks"])]
    if fields.get("key_name"):
        others.append(lambda: _keypair(caller, fields["key_name"]))
    if fields.get("security_groups"):
        others.append(lambda: _security_groups(caller, fields["security_groups"]))
    flavor, limits, *image = at_once([*questions, *others])[: len(questions)]
    _fits_quota(limits, flavor)
    if image:
        _fits_flavor(image[0], flavor)


def _flavor(caller: Clients, flavor_id: str) -> Any:
    return _get("Nova", "flavor", flavor_id, caller.nova.flavors.get)


def _limits(caller: Clients) -> dict[str, int]:
    """What Nova counts of the caller's project, and how much of it there may be, by Nova's names for both."""
    with asking("Nova"):
        return {limit.name: limit.value for limit in caller.nova.limits.get().absolute}


def _image(caller: Clients, image_id: str) -> Any:
    image = _get("Glance", "image", image_id, caller.sdk.image.get_image)
    if image.status != "active":
        _refuse(f"image {image.id} is {image.status}, not active")
    return image


def _fits_flavor(image: Any, flavor: Any) -> None:
    if (image.min_ram or 0) > flavor.ram:
        _refuse(
            f"image {image.id} needs {image.min_ram} MiB of memory; flavor {flavor.name} has {flavor.ram}"
        )
    if flavor.disk and (image.min_disk or 0) > flavor.disk:
        _refuse(
            f"image {image.id} needs a disk of {image.min_disk} GiB; flavor {flavor.name} has {flavor.disk}"
        )


def _fits_quota(limits: Mapping[str, int], flavor: Any) -> None:
    for what, used, limit, asked in (
        ("servers", "totalInstancesUsed", "maxTotalInstances", 1),
        ("virtual processors", "totalCoresUsed", "maxTotalCores", flavor.vcpus),
        ("MiB of memory", "totalRAMUsed", "maxTotalRAMSize", flavor.ram),
    ):
        if limits[limit] >= 0 and limits[used] + asked > limits[limit]:
            _refuse(
                f"your project's quota for {what} does not allow it: "
                f"{limits[used]} used, {asked} asked, {limits[limit]} allowed"
            )


def _networks(caller: Clients, project_id: str, networks: str | Sequence[Fields]) -> None:
    """Each network or port is the caller's to use; from the first one, IPv4 leads to the GPUs."""
    if networks == AUTO:
        own, shared = ({"project_id": project_id}, {"is_shared": True})
        found = at_once([partial(_found, caller, "networks", **which) for which in (own, shared)])
        names = {each.id: each.name for networks in found for each in networks}
        if len(names) > 1:
            listed = ", ".join(sorted(names.values()))
            _refuse(
                f"you named no network, and your project can use {len(names)}: {listed}; name one"
            )
        return
    at_once([partial(_network, caller, each, number == 0) for number, each in enumerate(networks)])


def _network(caller: Clients, asked: Fields, first: bool) -> None:
    if asked.get("port"):
        _port(caller, asked["port"], first)
        return
    if not asked.get("uuid"):
        _refuse("each of server.networks needs a uuid or a port")
    network_id = asked["uuid"]
    # Who sees a subnet sees its network; so the network itself is asked for only to tell what is wrong.
    if first and _found(caller, "subnets", network_id=network_id, ip_version=4):
        return
    _get("Neutron", "network", network_id, caller.sdk.network.get_network)
    if first:
        _refuse(
            f"network {network_id} has no IPv4 subnet that you can use, and the VM reaches its "
            "cGPUs over IPv4; name another network first"
        )


def _found(caller: Clients, nouns: str, **query: Any) -> list[Any]:
    """Neutron's *nouns* that the caller sees and *query* describes."""
    with asking("Neutron"):
        return list(getattr(caller.sdk.network, nouns)(**query))


def _port(caller: Clients, port_id: str, first: bool) -> None:
    port = _get("Neutron", "port", port_id, caller.sdk.network.get_port)
    if port.device_id:
        _refuse(f"port {port_id} is in use")
    if not first:
        return
    if port.binding_vnic_type not in (None, "normal"):
        _refuse(
            f"port {port_id} is of type {port.binding_vnic_type}: its packets pass by the host, "
            "which could not take them to the cGPUs; name a normal port or a network first"
        )
    if not any("." in fixed["ip_address"] for fixed in port.fixed_ips):
        _refuse(f"port {port_id} has no IPv4 address, and the VM reaches its cGPUs over IPv4")


def _keypair(caller: Clients, name: str) -> None:
    _get("Nova", "keypair", name, caller.nova.keypairs.get)


def _security_groups(caller: Clients, groups: Sequence[Fields]) -> None:
    at_once([partial(_security_group, caller, group.get("name")) for group in groups])


def _security_group(caller: Clients, asked: str) -> None:
    found = _found(caller, "security_groups", name=asked)
    found = found or _found(caller, "security_groups", id=asked)
    if not found:
        _refuse(f"there is no security group {asked} that you can use")
    if len(found) > 1:
        _refuse(f"your project has {len(found)} security groups {asked}; name one by its id")


def _get(service: str, noun: str, name: str, get: Callable[[str], Any]) -> Any:
    """What *get* finds; a sentence for the caller if there is no such thing, or it is not for him."""
    try:
        with asking(service):
            return get(name)
    except Refused as refused:
        if refused.status in (400, 403, 404):
            raise exceptions.ServerRefused(
                reason=f"there is no {noun} {name} that you can use"
            ) from refused
        raise exceptions.ServerRefused(reason=f"{service}: {refused}") from refused


def _refuse(reason: str) -> None:
    raise exceptions.ServerRefused(reason=reason)
