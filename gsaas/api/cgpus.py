# SPDX-License-Identifier: Apache-2.0
"""Converts the `cgpus` of a body to a request for GPGPUMS, and what a lease asked for back to `cgpus`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gsaas import exceptions
from gsaas.api.service import ApiService
from gsaas.objects.lease import Lease
from gsaas.objects.placement import Refusal
from gsaas.objects.request import ANY, Request

MAX_WITHOUT_SERVER = 2046
"""The most cGPUs of one lease without a server: as many as the default prefix for programs of a host has addresses.
Claiming and releasing many more would delay all other requests by seconds."""


def parse(
    service: ApiService, cgpus: dict[str, Any], consumer: Mapping[str, Any] | None = None
) -> Request:
    """Return the request for GPUs that *cgpus* describes.

    *cgpus* has passed its schema, and so has *consumer*, which is None for a lease with a server.

    Raises `BadRequest` if the request contradicts itself, needs more masked addresses than there are, or has a
    locality without a known host of the consumer; `RemotingLimit` if the middleware cannot show that many cGPUs to
    a program.
    """
    try:
        request = Request.from_dict(cgpus, (consumer or {}).get("host"))
    except ValueError as error:
        raise exceptions.BadRequest(reason=str(error)) from None
    if consumer is None:
        service.claims.masked.first(request.count)
    elif request.count > MAX_WITHOUT_SERVER:
        raise exceptions.BadRequest(
            reason=f"the request is for {request.count} cGPUs; a lease without a server can have at most "
            f"{MAX_WITHOUT_SERVER}"
        )
    elif request.consumer_host is None and request.locality != ANY:
        raise exceptions.BadRequest(
            reason=f"locality {request.locality} depends on the consumer's host, which GSaaS does not know for a "
            "lease without a server: name it as lease.consumer.host"
        )
    service.remoting.check(request.count)
    return request


def describe(lease: Lease) -> dict[str, Any]:
    """Return what *lease* asked for, in the form of `cgpus`."""
    return {
        "count": lease.count,
        "mode": lease.mode,
        "memory_mb": lease.memory_mb,
        "locality": lease.locality,
        "policy": lease.policy,
        **lease.requirements,
    }


def capacity_error(refusal: Refusal) -> exceptions.NoCapacity | exceptions.NeverFits:
    """Return the error that reports *refusal* to the caller."""
    error = exceptions.NeverFits if refusal.impossible else exceptions.NoCapacity
    return error(reason=refusal.reason, details=refusal.to_dict())
