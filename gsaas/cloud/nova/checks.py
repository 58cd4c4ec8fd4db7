"""Would Nova make this server for this caller? Asked before anything is claimed or made.

Each check asks one service, with the caller's own token, about what the caller named; so it sees what the caller may
see and no more. The checks run side by side: the slowest decides how long a launch waits for them. None of them is
a promise, as things change; Nova is asked again when the server is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gsaas import exceptions
from gsaas.cloud.nova.clients import Clients, Refused, asking
from gsaas.cloud.nova.requests import AUTO

Fields = Mapping[str, Any]
"""What `gsaas.cloud.nova.requests.fields` returned."""


def check(caller: Clients, project_id: str, fields: Fields) -> None:
    """Raise `ServerRefused` with the first reason why not; `CloudUnavailable` if a service does not answer."""
    checks: list[Callable[[], None]] = [lambda: _flavor_and_image(caller, fields)]
    checks.append(lambda: _networks(caller, project_id, fields["networks"]))
    if fields.get("key_name"):
        checks.append(lambda: _keypair(caller, fields["key_name"]))
    if fields.get("security_groups"):
        checks.append(lambda: _security_groups(caller, fields["security_groups"]))
    with ThreadPoolExecutor(len(checks)) as pool:
        for answer in [pool.submit(each) for each in checks]:
            answer.result()


def _flavor_and_image(caller: Clients, fields: Fields) -> None:
    flavor = _get("Nova", "flavor", fields["flavorRef"], lambda i: caller.nova.flavors.get(i))
    _quota(caller, flavor)
    if not fields.get("imageRef"):
        return
    image = _get("Glance", "image", fields["imageRef"], lambda i: caller.sdk.image.get_image(i))
    if image.status != "active":
        _refuse(f"image {image.id} is {image.status}, not active")
    if (image.min_ram or 0) > flavor.ram:
        _refuse(
            f"image {image.id} needs {image.min_ram} MiB of memory; flavor {flavor.name} has {flavor.ram}"
        )
    if flavor.disk and (image.min_disk or 0) > flavor.disk:
        _refuse(
            f"image {image.id} needs a disk of {image.min_disk} GiB; flavor {flavor.name} has {flavor.disk}"
        )


def _quota(caller: Clients, flavor: Any) -> None:
    with asking("Nova"):
        limits = {limit.name: limit.value for limit in caller.nova.limits.get().absolute}
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
    network = caller.sdk.network
    if networks == AUTO:
        with asking("Neutron"):
            own = list(network.networks(project_id=project_id))
            names = {each.id: each.name for each in [*own, *network.networks(is_shared=True)]}
        if len(names) > 1:
            listed = ", ".join(sorted(names.values()))
            _refuse(
                f"you named no network, and your project can use {len(names)}: {listed}; name one"
            )
        return
    for number, each in enumerate(networks):
        if each.get("port"):
            _port(caller, each["port"], first=number == 0)
            continue
        asked = each.get("uuid")
        if not asked:
            _refuse("each of server.networks needs a uuid or a port")
        found = _get("Neutron", "network", asked, network.get_network)
        if number == 0:
            with asking("Neutron"):
                if not any(network.subnets(network_id=found.id, ip_version=4)):
                    _refuse(
                        f"network {found.id} has no IPv4 subnet that you can use, and the VM reaches its "
                        "cGPUs over IPv4; name another network first"
                    )


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
    _get("Nova", "keypair", name, lambda i: caller.nova.keypairs.get(i))


def _security_groups(caller: Clients, groups: Sequence[Fields]) -> None:
    network = caller.sdk.network
    for group in groups:
        asked = group.get("name")
        with asking("Neutron"):
            found = list(network.security_groups(name=asked))
            found = found or list(network.security_groups(id=asked))
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
