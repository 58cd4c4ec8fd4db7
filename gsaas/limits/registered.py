"""Tell Keystone which limits there are, so that an operator can set them: its registered limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from gsaas.limits.base import UNITS, Amounts

SERVICE_TYPE = "gpu-scheduling"


class ServiceNotRegistered(Exception):
    """Keystone's catalogue has no such service, or no endpoint of it, that limits could belong to."""


class Registered(NamedTuple):
    """One limit as Keystone has it now."""

    name: str
    region: str | None
    limit: int
    new: bool
    """It was not there before."""


def register(identity: Any, defaults: Amounts) -> Iterator[Registered]:
    """Make what is missing, in each region that has an endpoint of ours; never change what is there.

    *identity* is the SDK's identity proxy of an administrator. Raises `ServiceNotRegistered`, and
    what the SDK raises.
    """
    services = list(identity.services(type=SERVICE_TYPE))
    if not services:
        raise ServiceNotRegistered(
            f"the catalogue has no service of type {SERVICE_TYPE}; create it and its endpoints first"
        )
    for service in services:
        found = identity.endpoints(service_id=service.id)
        regions = sorted({endpoint.region_id for endpoint in found}, key=str)
        if not regions:
            raise ServiceNotRegistered(
                f"the service {service.name} has no endpoints; create them first"
            )
        for region in regions:
            yield from _in_region(identity, service.id, region, defaults)


def _in_region(
    identity: Any, service_id: str, region: str | None, defaults: Amounts
) -> Iterator[Registered]:
    listed = identity.registered_limits(service_id=service_id)
    known = {
        limit.resource_name: limit.default_limit for limit in listed if limit.region_id == region
    }
    for name, unit in UNITS.items():
        if name not in known:
            identity.create_registered_limit(
                service_id=service_id,
                region_id=region,
                resource_name=name,
                default_limit=defaults[name],
                description=f"{unit} of a project",
            )
        yield Registered(name, region, known.get(name, defaults[name]), name not in known)
