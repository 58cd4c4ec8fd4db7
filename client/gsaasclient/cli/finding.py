# SPDX-License-Identifier: Apache-2.0
"""Finds the lease or the reservation that a user means by an id, the beginning of one, or a name."""

from __future__ import annotations

from collections.abc import Callable

from gsaasclient import ApiError, Client, ClientError, naming
from gsaasclient.api import API_VERSION, RESERVATIONS_VERSION
from gsaasclient.cli.paging import get_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Resource = dict[str, Any]

LEASES, RESERVATIONS = "/v1/leases", "/v1/reservations"
WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
"""Characters that a name may have to be typed without quotes."""
SORTING_VERSION = "1.1"
"""The first microversion of the API that sorts lists, and lists what has changed."""


def path_of(collection: str, id: str) -> str:
    """Return where the API has the member of a *collection* with this id."""
    from urllib.parse import quote

    return f"{collection}/{quote(id, safe='')}"


def lease(client: Client, called: str, *, released: bool = False) -> Resource:
    """Return the lease that is *called* so: by its id, its VM's, the beginning of one of these, or its name.

    With *released* it may be one that is RELEASED, the newest of that name, if no other one is called so. Raises
    `ClientError` when there is none, or when several are called so.
    """
    if naming.is_id(called):
        try:
            found: Resource = client.request("GET", path_of(LEASES, called))["lease"]
            return found
        except ApiError as error:
            if error.status != 404:
                raise
        for of_server in _leases(client, server_id=called):
            return of_server
    named = _leases(client, name=called)
    leases = named or _beginning(called, lambda: _leases(client))
    if not leases and released:
        newest = {"status": "RELEASED", "sort_key": "created_at", "sort_dir": "desc"}
        leases = _leases(client, SORTING_VERSION, name=called, **newest)[:1]
        leases = leases or _beginning(called, lambda: _leases(client, status="RELEASED"))
    return _one(leases, called, "lease or VM", "leases", "gsaas list shows yours")


def reservation(client: Client, called: str, *, over: bool = False) -> Resource:
    """Return the reservation that is *called* so: by its id, the beginning of its id, or its name.

    With *over* it may be one that is over. Raises `ClientError` when there is none, or when several are called so.
    """
    if naming.is_id(called):
        path = path_of(RESERVATIONS, called)
        found: Resource = client.request("GET", path, version=RESERVATIONS_VERSION)["reservation"]
        return found
    wanted = _reservations(client, called, "")
    if not wanted and over:
        wanted = [
            *_reservations(client, called, "?status=ENDED"),
            *_reservations(client, called, "?status=CANCELLED"),
        ]
    return _one(wanted, called, "reservation", "reservations", "gsaas reservations lists yours")


def gpu_uuid(client: Client, called: str) -> str:
    """Return the UUID of the GPU that is *called* so: its UUID, or the beginning of it that a list prints.

    What is none is returned as it is, for the API to refuse. Raises `ClientError` when it means several.
    """
    beginning = called.rstrip("….")
    listed = get_all(client, "/v1/gpus", "gpus").get("gpus", [])
    found = [gpu["uuid"] for gpu in listed if gpu["uuid"].startswith(beginning)]
    if called in found or len(beginning) < naming.SHORTEST_GPU_PREFIX or not found:
        return called
    if len(found) > 1:
        raise ClientError(naming.ambiguous(called, "GPUs", [], found))
    return str(found[0])


def called(resource: Resource, noun: str, namesakes: Callable[[], list[Resource]]) -> str:
    """Return what commands may call a *resource*: its name if no other one of *namesakes* has it, else its id."""
    id: str = resource["id"]
    name: str = resource["name"]
    if name == f"{noun}-{id[:8]}":
        return name  # the API has made it of the id
    if not set(name) <= WORD or name.startswith("-"):
        return id
    try:
        found = [one["id"] for one in namesakes() if one["name"] == name]
    except ClientError:
        return id
    return name if found == [id] else id


def called_lease(client: Client, lease: Resource) -> str:
    """Return what commands may call a lease: its name, if no other lease of the project has it, else its id."""
    return called(lease, "lease", lambda: _leases(client, name=lease["name"]))


def called_reservation(client: Client, reservation: Resource) -> str:
    """Return what commands may call a reservation: its name, if no other one that is not over has it, else its id."""
    return called(
        reservation, "reservation", lambda: _reservations(client, reservation["name"], "")
    )


def reservation_id(client: Client, called: str) -> str:
    """Return the id of the reservation that is *called* so, which need not exist if it is a whole id."""
    return called if naming.is_id(called) else str(reservation(client, called)["id"])


def _reservations(client: Client, called: str, query: str) -> list[Resource]:
    path = f"{RESERVATIONS}{query}"
    listed: list[Resource] = get_all(client, path, "reservations", RESERVATIONS_VERSION)[
        "reservations"
    ]
    return [one for one in listed if one["name"] == called] or _beginning(called, lambda: listed)


def _leases(client: Client, version: str = API_VERSION, **query: str) -> list[Resource]:
    from urllib.parse import urlencode

    path = f"{LEASES}?{urlencode(query)}" if query else LEASES
    found: list[Resource] = get_all(client, path, "leases", version)["leases"]
    return found


def _beginning(called: str, listed: Callable[[], list[Resource]]) -> list[Resource]:
    """Return those of *listed* whose id, or whose VM's id, begins with what they are *called*."""
    if not naming.may_begin_id(called):
        return []
    return [
        one
        for one in listed()
        if naming.begins_one_of(called, (one["id"], (one.get("server") or {}).get("id")))
    ]


def _one(found: list[Resource], called: str, noun: str, plural: str, hint: str) -> Resource:
    if not found:
        raise ClientError(f"there is no {noun} {called}; {hint}")
    if len(found) > 1:
        names, ids = [one["name"] for one in found], [one["id"] for one in found]
        raise ClientError(naming.ambiguous(called, plural, names, ids))
    return found[0]
