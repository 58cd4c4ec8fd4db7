"""From the `cgpus` of a body to a request that GPGPUMS understands and this cloud can carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gsaas import exceptions
from gsaas.api.service import Service
from gsaas.db import models
from gsaas.objects.placement import Refusal
from gsaas.objects.request import ANY, Request

MOST_ALONE = 2046
"""cGPUs of one lease without a server: all that the usual prefix of a host's own programs has addresses for. The
claim and the release of many more would keep everybody else waiting for seconds."""


def request(
    service: Service, cgpus: dict[str, Any], consumer: Mapping[str, Any] | None = None
) -> Request:
    """Return the request; *cgpus* has passed its schema, as has the *consumer* of one without a server.

    Raises `BadRequest` if the request contradicts itself, there are too few masked addresses for it, or
    nobody knows where a consumer is whose locality matters; and `RemotingLimit` if the middleware
    would not show that many GPUs to a program.
    """
    try:
        wanted = Request.from_dict(cgpus, (consumer or {}).get("host"))
    except ValueError as error:
        raise exceptions.BadRequest(reason=str(error)) from None
    if consumer is None:
        service.claims.masked.first(wanted.count)
    elif wanted.count > MOST_ALONE:
        raise exceptions.BadRequest(
            reason=f"{wanted.count} cGPUs were asked for; one lease without a server has {MOST_ALONE} at most"
        )
    elif wanted.consumer_host is None and wanted.locality != ANY:
        raise exceptions.BadRequest(
            reason=f"locality {wanted.locality} is about the host of the consumer, and without a server "
            "only you know it: name it as lease.consumer.host"
        )
    service.remoting.check(wanted.count)
    return wanted


def describe(lease: models.LeaseRow) -> dict[str, Any]:
    """Return what a lease asked for, in the words of the request."""
    return {
        "count": lease.count,
        "mode": lease.mode,
        "memory_mb": lease.memory_mb,
        "locality": lease.locality,
        "policy": lease.policy,
        **lease.requirements,
    }


def refused(refusal: Refusal) -> exceptions.NoCapacity | exceptions.NeverFits:
    """Return the error that says what *refusal* says."""
    family = exceptions.NeverFits if refusal.impossible else exceptions.NoCapacity
    return family(reason=refusal.reason, details=refusal.to_dict())
