# SPDX-License-Identifier: Apache-2.0
"""Check that Nova would make a server for the caller, before anything is claimed or made.

Each check asks one service about one object that the request names, with the caller's own token: so it sees exactly
what the caller can see. The checks run in parallel; a launch waits for the slowest. A check that passes guarantees
nothing, because objects change: Nova checks again when the server is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from gsaas import exceptions
from gsaas.cloud.nova.clients import (
    Clients,
    RequestRejected,
    run_in_parallel,
    translated_errors,
)

Fields = Mapping[str, Any]
"""What `gsaas.cloud.nova.requests.fields` returns."""


def check(caller: Clients, project_id: str | None, fields: Fields) -> None:
    """Check that Nova would make the server that *fields* describe, as far as this can be known before.

    *caller* are clients with the caller's token. Raises `ServerRefused` with the first reason against it, and
    `CloudUnavailable` if a service does not answer.
    """
    # The results of the first three are compared below; the other checks return nothing.
    compared: list[Callable[[], Any]] = [
        lambda: _flavor(caller, fields["flavorRef"]),
        lambda: _limits(caller),
    ]
    if fields.get("imageRef"):
        compared.append(lambda: _image(caller, fields["imageRef"]))
    other_checks = [lambda: _check_networks(caller, project_id, fields["networks"])]
    if fields.get("key_name"):
        other_checks.append(lambda: _check_keypair(caller, fields["key_name"]))
    if fields.get("security_groups"):
        other_checks.append(lambda: _check_security_groups(caller, fields["security_groups"]))
    flavor, usage, *image = run_in_parallel([*compared, *other_checks])[: len(compared)]
    _check_quota(usage, flavor)
    if image:
        _check_image_fits(image[0], flavor)


def _flavor(caller: Clients, flavor_id: str) -> Any:
    return _get("Nova", "flavor", flavor_id, caller.nova.flavors.get)


def _limits(caller: Clients) -> dict[str, int]:
    """Return usage and quota of the caller's project, by Nova's names for both (`totalCoresUsed`, `maxTotalCores`)."""
    with translated_errors("Nova"):
        return {limit.name: limit.value for limit in caller.nova.limits.get().absolute}


def _image(caller: Clients, image_id: str) -> Any:
    image = _get("Glance", "image", image_id, caller.sdk.image.get_image)
    if image.status != "active":
        _refuse(f"image {image.id} is {image.status}, not active")
    return image


def _check_image_fits(image: Any, flavor: Any) -> None:
    if (image.min_ram or 0) > flavor.ram:
        _refuse(
            f"image {image.id} needs {image.min_ram} MiB of memory; flavor {flavor.name} has {flavor.ram}"
        )
    if flavor.disk and (image.min_disk or 0) > flavor.disk:
        _refuse(
            f"image {image.id} needs a disk of {image.min_disk} GiB; flavor {flavor.name} has {flavor.disk}"
        )


def _check_quota(usage: Mapping[str, int], flavor: Any) -> None:
    # Nova itself checks the quotas in the same way, but only when the server is made.
    for what, used, limit, asked in (
        ("servers", "totalInstancesUsed", "maxTotalInstances", 1),
        ("virtual processors", "totalCoresUsed", "maxTotalCores", flavor.vcpus),
        ("MiB of memory", "totalRAMUsed", "maxTotalRAMSize", flavor.ram),
    ):
        if usage[limit] >= 0 and usage[used] + asked > usage[limit]:  # -1 means no limit
            _refuse(
                f"your project's quota for {what} does not allow it: "
                f"{usage[used]} used, {asked} asked, {usage[limit]} allowed"
            )


def _check_networks(
    caller: Clients, project_id: str | None, networks: str | Sequence[Fields]
) -> None:
    """Check that the caller can use each network or port, and that the first one has IPv4, which cGPUs need."""
    if isinstance(networks, str):  # AUTO
        own, shared = ({"project_id": project_id}, {"is_shared": True})
        found = run_in_parallel(
            [partial(_list, caller, "networks", **which) for which in (own, shared)]
        )
        names = {each.id: each.name for networks in found for each in networks}
        if len(names) > 1:
            listed = ", ".join(sorted(names.values()))
            _refuse(
                f"you named no network, and your project can use {len(names)}: {listed}; name one"
            )
        return
    run_in_parallel(
        [partial(_check_network, caller, each, number == 0) for number, each in enumerate(networks)]
    )


def _check_network(caller: Clients, requested: Fields, first: bool) -> None:
    if requested.get("port"):
        _check_port(caller, requested["port"], first)
        return
    if not requested.get("uuid"):
        _refuse("each of server.networks needs a uuid or a port")
    network_id = requested["uuid"]
    # A caller that sees a subnet sees its network: so the network is requested only to find out what is wrong.
    if first and _list(caller, "subnets", network_id=network_id, ip_version=4):
        return
    _get("Neutron", "network", network_id, caller.sdk.network.get_network)
    if first:
        _refuse(
            f"network {network_id} has no IPv4 subnet that you can use, and the VM reaches its "
            "cGPUs over IPv4; name another network first"
        )


def _list(caller: Clients, collection: str, **query: Any) -> list[Any]:
    """Return what the caller sees of a *collection* of Neutron's (`networks`, `subnets`, ...) that matches *query*."""
    with translated_errors("Neutron"):
        return list(getattr(caller.sdk.network, collection)(**query))


def _check_port(caller: Clients, port_id: str, first: bool) -> None:
    port = _get("Neutron", "port", port_id, caller.sdk.network.get_port)
    if port.device_id:
        _refuse(f"port {port_id} is in use")
    if not first:
        return
    if port.binding_vnic_type not in (None, "normal"):
        _refuse(
            f"port {port_id} is of type {port.binding_vnic_type}: its packets bypass the host's "
            "kernel, which could not forward them to the cGPUs; name a normal port or a network first"
        )
    if not any("." in fixed["ip_address"] for fixed in port.fixed_ips):
        _refuse(f"port {port_id} has no IPv4 address, and the VM reaches its cGPUs over IPv4")


def _check_keypair(caller: Clients, name: str) -> None:
    _get("Nova", "keypair", name, caller.nova.keypairs.get)


def _check_security_groups(caller: Clients, groups: Sequence[Fields]) -> None:
    run_in_parallel([partial(_check_security_group, caller, group.get("name")) for group in groups])


def _check_security_group(caller: Clients, name_or_id: str | None) -> None:
    found = _list(caller, "security_groups", name=name_or_id)
    found = found or _list(caller, "security_groups", id=name_or_id)
    if not found:
        _refuse(f"there is no security group {name_or_id} that you can use")
    if len(found) > 1:
        _refuse(f"your project has {len(found)} security groups {name_or_id}; name one by its id")


def _get(service: str, noun: str, name: str, get: Callable[[str], Any]) -> Any:
    """Return what *get* finds; raise `ServerRefused` if there is no such object, or the caller may not see it."""
    try:
        with translated_errors(service):
            return get(name)
    except RequestRejected as rejected:
        if rejected.status in (400, 403, 404):
            raise exceptions.ServerRefused(
                reason=f"there is no {noun} {name} that you can use"
            ) from rejected
        raise exceptions.ServerRefused(reason=f"{service}: {rejected}") from rejected


def _refuse(reason: str) -> NoReturn:
    raise exceptions.ServerRefused(reason=reason)
