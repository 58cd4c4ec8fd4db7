# SPDX-License-Identifier: Apache-2.0
"""Create GSaaS's registered limits in Keystone, so that operators can set limits for projects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from gsaas.limits.base import UNITS, Amounts

SERVICE_TYPE = "gpu-scheduling"


class ServiceNotRegistered(Exception):
    """Keystone's catalogue lacks GSaaS's service, or an endpoint of it, to which limits must belong."""


class Registered(NamedTuple):
    """A registered limit as it is in Keystone now."""

    name: str
    region: str | None
    limit: int
    new: bool
    """Whether it has just been created."""


def register(identity: Any, defaults: Amounts) -> Iterator[Registered]:
    """Create the limits that are missing, in each region with an endpoint of GSaaS, and yield all; change none.

    *identity* is the SDK's identity proxy of an administrator, *defaults* the values of new limits. Raises
    `ServiceNotRegistered`, and what the SDK raises.
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
