"""How a server says which lease it is of: a tag, because tags are what Nova can search for.

The server's owner can change tags, so whoever reads one asks the database what it knows, and
`gsaas.cloud.nova.cloud` asks Nova whose the server is and since when.
"""

from __future__ import annotations

from collections.abc import Iterable

_PREFIX = "gsaas-lease-"


def tag(lease_id: str) -> str:
    """The tag of a lease's server."""
    return _PREFIX + lease_id


def lease_of(tags: Iterable[str]) -> str | None:
    """The lease that one of *tags* names; None without such a tag."""
    for each in tags:
        if each.startswith(_PREFIX):
            return each.removeprefix(_PREFIX)
    return None
