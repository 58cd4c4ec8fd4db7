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

    Hosts are named as the cloud names them, which callers may write in another way (`Claims.host_named`).

    Raises `BadRequest` if the request contradicts itself, needs more masked addresses than there are, or has a
    locality without a known host of the consumer; `NeverFits` if a cGPU is smaller than the operator allows;
    `KindNotServed`; `RemotingLimit` if the middleware cannot show those
    cGPUs to a program.
    """
    hosts = {"consumer": (consumer or {}).get("host"), "gpus": cgpus.get("host")}
    known = {whose: service.claims.host_named(name) for whose, name in hosts.items() if name}
    try:
        kind = {"kind": service.drivers.default_kind}
        wanted = kind | cgpus | ({"host": known["gpus"]} if "gpus" in known else {})
        request = Request.from_dict(wanted, known.get("consumer"))
    except ValueError as error:
        raise exceptions.BadRequest(reason=str(error)) from None
    try:
        request.check_share(service.conf.gpgpums.min_share_mb)
    except ValueError as error:
        raise capacity_error(Refusal(True, str(error))) from None
    if consumer is None:
        service.claims.masked.check(request.count)
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
    return service.drivers.of(request.kind).adapt(request)


def describe(lease: Lease) -> dict[str, Any]:
    """Return what *lease* asked for, in the form of `cgpus`."""
    return {
        "count": lease.count,
        "kind": lease.kind,
        "mode": lease.mode,
        "memory_mb": lease.memory_mb,
        "locality": lease.locality,
        "policy": lease.policy,
        **asked_for(lease.requirements),
    }


def asked_for(requirements: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of *requirements* that a caller asked for, and not the remoting driver."""
    by_driver = "one_daemon", "ports_per_daemon"
    return {name: value for name, value in requirements.items() if name not in by_driver}


def capacity_error(refusal: Refusal) -> exceptions.NoCapacity | exceptions.NeverFits:
    """Return the error that reports *refusal* to the caller."""
    error = exceptions.NeverFits if refusal.impossible else exceptions.NoCapacity
    return error(reason=refusal.reason, details=refusal.to_dict())
