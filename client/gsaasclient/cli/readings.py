# SPDX-License-Identifier: Apache-2.0
"""Readings of leases: which microversion of the API has them, and how they read."""

from __future__ import annotations

from gsaasclient import lease_fields
from gsaasclient.api import API_VERSION
from gsaasclient.errors import ApiError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

VERSIONS = lease_fields.versions((*lease_fields.GSAAS, *lease_fields.OPENSTACK_ENDED))
"""The microversions that have brought fields which `gsaas` prints, newest first."""
_UNSUPPORTED = "gsaas.microversion.unsupported"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def with_readings(ask: Callable[[str], T], otherwise: str = API_VERSION) -> T:
    """Return what *ask* returns for the newest of `VERSIONS` that the API has; for *otherwise*, if it has none.

    Raises what *ask* raises.
    """
    for version in VERSIONS:
        try:
            return ask(version)
        except ApiError as error:
            if error.code != _UNSUPPORTED:
                raise
    return ask(otherwise)


def utilisation(lease: dict[str, Any]) -> float | None:
    """Return the mean utilisation of the cGPUs of *lease*, percent; None if it is not known of any."""
    percents = [cgpu["utilisation"] for cgpu in _cgpus(lease) if cgpu["utilisation"] is not None]
    return sum(percents) / len(percents) if percents else None


def used_mb(lease: dict[str, Any]) -> int | None:
    """Return the memory that the cGPUs of *lease* use together, MiB; None if it is not known of any."""
    used = [cgpu["used_mb"] for cgpu in _cgpus(lease) if cgpu["used_mb"] is not None]
    return sum(used) if used else None


def path(lease: dict[str, Any], field: str) -> Any:
    """Return a *field* of what passes between the VM of *lease* and its cGPUs; None if it is not known."""
    reading: dict[str, Any] = lease.get("reading") or {}
    return (reading.get("path") or {}).get(field)


def per_second(count: float | None) -> str | None:
    """Return a rate of bytes as text, such as `1.5 MiB/s`; None for None."""
    if count is None:
        return None
    value, unit = float(count), _UNITS[0]
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}/s" if unit == _UNITS[0] else f"{value:.1f} {unit}/s"


def _cgpus(lease: dict[str, Any]) -> list[dict[str, Any]]:
    cgpus: list[dict[str, Any]] = (lease.get("reading") or {}).get("cgpus", [])
    return cgpus
