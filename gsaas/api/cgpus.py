"""From the `cgpus` of a body to a request that GPGPUMS understands and this cloud can carry."""

from __future__ import annotations

from typing import Any

from gsaas import exceptions
from gsaas.api.service import Service
from gsaas.gpgpums.state import ANY, EXCLUSIVE, Refusal, Request


def request(service: Service, cgpus: dict[str, Any]) -> Request:
    """Return the request; *cgpus* has passed its schema.

    Raises `BadRequest` if there are too few masked addresses for it, and `RemotingLimit` if the
    middleware would not show that many GPUs to a program.
    """
    wanted = Request(
        count=cgpus["count"],
        mode=cgpus.get("mode", EXCLUSIVE),
        memory_mb=cgpus.get("memory_mb"),
        locality=cgpus.get("locality", ANY),
    )
    service.claims.masked.first(wanted.count)
    service.remoting.check(wanted.count)
    return wanted


def refused(refusal: Refusal) -> exceptions.NoCapacity | exceptions.NeverFits:
    """Return the error that says what *refusal* says."""
    family = exceptions.NeverFits if refusal.impossible else exceptions.NoCapacity
    return family(reason=refusal.reason, details=refusal.to_dict())
