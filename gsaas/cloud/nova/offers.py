# SPDX-License-Identifier: Apache-2.0
"""Asks OpenStack's services for the images, flavors and networks that a caller may use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.cloud.nova.clients import (
    Clients,
    RequestRejected,
    run_in_parallel,
    translated_errors,
)
from gsaas.cloud.nova.defaults import Default, Offer, Reach

_PAGE = 1000
"""Images of one request: what Glance allows at most, by default."""
_PARTS_OF_IMAGES = frozenset({"aki", "ari"})
"""Container formats of kernels and RAM disks, which boot nothing by themselves."""


def of(caller: Clients, project_id: str | None) -> dict[str, Callable[[], list[Offer]]]:
    """Return what asks for all that the caller, of this project, may use, by the field of a server that names it.

    Each raises `RequestRejected` and `CloudUnavailable`.
    """
    return {
        "imageRef": partial(_images, caller, project_id),
        "flavorRef": partial(_flavors, caller),
        "networks": partial(_networks, caller, project_id),
    }


def allocates_network(caller: Clients, project_id: str | None) -> bool:
    """Return whether Neutron would make a network for a project that can use none; it makes nothing now."""
    try:
        with translated_errors("Neutron"):
            caller.sdk.network.validate_auto_allocated_topology(project_id)
    except (RequestRejected, exceptions.CloudUnavailable):
        return False  # also where Neutron lacks the extension, or what it would need
    return True


def networks_like(service: Clients, default: Default) -> list[Offer]:
    """Return the networks of all projects that may be meant by *default*; *service* are clients that see them all.

    Raises `RequestRejected` and `CloudUnavailable`.
    """
    query = {"tags": default.value} if default.name is None else {"name": default.name}
    with translated_errors("Neutron"):
        found = list(service.sdk.network.networks(**query))
        found = found or (
            list(service.sdk.network.networks(id=default.name)) if default.name else []
        )
    return [_network(each, None) for each in found]


def _images(caller: Clients, project_id: str | None) -> list[Offer]:
    with translated_errors("Glance"):
        found = list(caller.sdk.image.images(status="active", limit=_PAGE))
    return [
        _image(image, project_id)
        for image in found
        if image.container_format not in _PARTS_OF_IMAGES
    ]


def _image(image: Any, project_id: str | None) -> Offer:
    reach = Reach.PUBLIC if image.visibility == "public" else Reach.SHARED
    if image.owner == project_id:
        reach = Reach.OWN
    # Its own document has properties of images where they are, whether the SDK knows them or not.
    document = image.to_dict(original_names=True)
    properties = {**document, **(document.pop("properties", None) or {})}
    newest_first = -timeutils.parse_isotime(image.created_at).timestamp()
    return Offer(image.id, image.name or "", reach, properties, (), (newest_first,))


def _flavors(caller: Clients) -> list[Offer]:
    with translated_errors("Nova"):
        found = [flavor.to_dict() for flavor in caller.nova.flavors.list()]
    return [
        Offer(
            flavor["id"],
            flavor["name"],
            properties=flavor.get("extra_specs", {}),
            order=(flavor["ram"], flavor["vcpus"], flavor["disk"]),
        )
        for flavor in found
    ]


def _networks(caller: Clients, project_id: str | None) -> list[Offer]:
    """Return what Nova, too, regards as the networks of a project: its own, and those shared with it."""

    def ask(**which: Any) -> list[Any]:
        with translated_errors("Neutron"):
            return list(caller.sdk.network.networks(**which))

    own, shared = run_in_parallel([lambda: ask(project_id=project_id), lambda: ask(is_shared=True)])
    networks = {each.id: each for each in (*shared, *own)}
    return [_network(each, project_id) for each in networks.values()]


def _network(network: Any, project_id: str | None) -> Offer:
    reach = Reach.OWN if network.project_id == project_id else Reach.SHARED
    return Offer(network.id, network.name or "", reach, tags=network.tags or ())
