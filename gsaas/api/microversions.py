# SPDX-License-Identifier: Apache-2.0
"""The microversions of the API, and which one a request asks for.

A request asks for one with the header `OpenStack-API-Version: gpu-scheduling 1.0`. A request without this header gets
the oldest microversion, so that an old client keeps working.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from gsaas import exceptions

HEADER = "OpenStack-API-Version"
SERVICE = "gpu-scheduling"

HISTORY = (
    (1, 0),
    (1, 1),
    (1, 2),
    (1, 3),
    (1, 4),
    (1, 5),
    (1, 6),
    (1, 7),
    (1, 8),
    (1, 9),
    (1, 10),
    (1, 11),
)
"""Every microversion, oldest first.

1.0: leases, checks, GPUs, hosts, endpoints, policies, limits.
1.1: lists of leases, GPUs, hosts, endpoints and the queue take `sort_key` and `sort_dir`; that of leases takes
     `changes-since`.
1.2: an operator may consent to the move of a GPU to another host; GPUs have `reported_by`.
1.3: a launch takes the header `Idempotency-Key`. It has the same effect with any older microversion: a client finds out
     by this number whether a launch may be repeated.
1.4: the name of a lease can be changed, and its priority while it is in the queue.
1.5: leases have `idle_since` and `reading`, and readings of the last day.
1.6: leases have `reclaim_at`.
1.7: reservations, and launches in them; GPUs have `reserved_mb`.
1.8: checks in reservations.
1.9: requests, leases and GPUs have `kind`.
1.10: leases have `problems`.
1.11: models of GPUs; leases have `duration` and `ends_at`, `claimed_at` and `usage`, their `server` has `addresses`;
      usage has costs; the name of a reservation can be changed; operators move cGPUs to other GPUs, and drain hosts;
      leases have `movable` and `cut_at`.
"""
SORTING = "1.1"
"""The microversion whose lists can be sorted."""
ADOPTION = "1.2"
"""The microversion that has the consent to moves of GPUs."""
CHANGED_LEASES = "1.4"
"""The microversion that has changes of leases."""
READINGS = "1.5"
"""The microversion that has readings of leases."""
RECLAIM = "1.6"
"""The microversion whose leases say when they are reclaimed."""
RESERVATIONS = "1.7"
"""The microversion that has reservations."""
CHECKS_IN_RESERVATIONS = "1.8"
"""The microversion that has checks in reservations."""
KINDS = "1.9"
"""The microversion that tells kinds of devices apart."""
PROBLEMS = "1.10"
"""The microversion whose leases say what is refused to their VMs and programs."""
MODELS = "1.11"
"""The microversion that lists the models of GPUs."""
ENDS = "1.11"
"""The microversion whose leases may have an end."""
LEASE_USAGE = "1.11"
"""The microversion whose leases say what they used."""
COSTS = "1.11"
"""The microversion whose usage says what it costs."""
CHANGED_RESERVATIONS = "1.11"
"""The microversion that has changes of reservations."""
ADDRESSES = "1.11"
"""The microversion whose leases have the addresses of their VMs."""
MOVES = "1.11"
"""The microversion that has moves of cGPUs, and consents to them."""

_NAME = re.compile(r"[a-z][a-z0-9-]*")
"""The service type of OpenStack's services, in the header."""

SINCE = "x-openstack"
"""The keyword of a field's schema that names its first microversion, as OpenStack's own documents write it:
`{"min-ver": "1.1"}`. Bodies and queries with a newer field are refused, answers leave it out, and the OpenAPI document
says so."""


class MalformedVersion(exceptions.BadRequest):
    """The microversion header cannot be parsed."""

    code = "gsaas.microversion.malformed"
    fmt = "%(header)s is %(given)r; it must be like 'gpu-scheduling 1.0' or 'gpu-scheduling latest'"


class UnsupportedVersion(exceptions.GsaasError):
    """The service does not support the microversion that the request asks for."""

    code = "gsaas.microversion.unsupported"
    status = 406
    fmt = "microversion %(given)s is not supported; ask for one from %(min_version)s to %(max_version)s"


def format_version(version: tuple[int, int]) -> str:
    """Return a microversion as the header contains it, such as `1.0`."""
    return f"{version[0]}.{version[1]}"


OLDEST, NEWEST = format_version(HISTORY[0]), format_version(HISTORY[-1])


def negotiate(header: str | None) -> str:
    """Return the microversion that *header* asks for; None stands for a request without the header.

    The header may list several services, separated by commas; those other than this one are ignored.
    Raises `MalformedVersion` or `UnsupportedVersion`.
    """
    if header is None:
        return OLDEST
    parts = [part.split() for part in header.split(",")]
    if any(len(words) != 2 or not _NAME.fullmatch(words[0]) for words in parts):
        raise MalformedVersion(header=HEADER, given=header)
    versions = [version for service, version in parts if service == SERVICE]
    if not versions:
        return OLDEST
    if len(versions) > 1:
        raise MalformedVersion(header=HEADER, given=header)
    wanted = versions[0]
    if wanted == "latest":
        return NEWEST
    if not re.fullmatch(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})", wanted, re.ASCII):
        raise MalformedVersion(header=HEADER, given=header)
    if wanted not in map(format_version, HISTORY):
        raise UnsupportedVersion(given=wanted, min_version=OLDEST, max_version=NEWEST)
    return wanted


def supports(version: str, since: str) -> bool:
    """Return whether *version* has what is new in *since*."""
    return _parse(version) >= _parse(since)


def versions_since(since: str) -> list[str]:
    """Return every microversion from *since* on, oldest first."""
    return [version for version in map(format_version, HISTORY) if supports(version, since)]


def since_of(schema: Mapping[str, Any]) -> str:
    """Return the first microversion that has the field with this *schema*."""
    first: str = schema.get(SINCE, {}).get("min-ver", OLDEST)
    return first


def explain(name: str, since: str, version: str) -> str:
    """Return why a request for microversion *version* may not use *name*, which is new in *since*."""
    return (
        f"{name} needs microversion {since} or newer, and this request is for {version}; "
        f"ask for it with the header {HEADER}: {SERVICE} {since}"
    )


def check_route(since: str, version: str) -> None:
    """Raise `BadRequest` if an operation that is new in *since* is not in *version*."""
    if not supports(version, since):
        raise exceptions.BadRequest(reason=explain("this operation", since, version))


@functools.cache  # of microversions that exist: neither routes nor `negotiate` give others
def _parse(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)
