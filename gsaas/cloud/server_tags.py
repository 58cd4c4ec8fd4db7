# SPDX-License-Identifier: Apache-2.0
"""The tag that links a server to its lease. A tag, because Nova can search for servers by tag.

The server's owner can change its tags, so a tag alone proves nothing: a reader checks it against the database, and
`gsaas.cloud.nova.cloud` also checks the server's project and the time of its creation.
"""

from __future__ import annotations

from collections.abc import Iterable

_PREFIX = "gsaas-lease-"


def tag(lease_id: str) -> str:
    """Return the tag of a lease's server."""
    return _PREFIX + lease_id


def lease_of(tags: Iterable[str]) -> str | None:
    """Return the id of the lease that one of *tags* names; None if none of them is such a tag."""
    return next(iter(leases_of(tags)), None)


def leases_of(tags: Iterable[str]) -> list[str]:
    """Return the ids of all leases that *tags* name."""
    return [each.removeprefix(_PREFIX) for each in tags if each.startswith(_PREFIX)]
