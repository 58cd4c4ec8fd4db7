"""The microversions of the API: which there are, and which one a request asks for.

`OpenStack-API-Version: gpu-scheduling 1.0`. A request that names none gets the oldest, so that a
client keeps working as it was written.
"""

from __future__ import annotations

import re

from gsaas.api import errors

HEADER = "OpenStack-API-Version"
SERVICE = "gpu-scheduling"

HISTORY = ((1, 0),)
"""Every microversion, oldest first.

1.0: leases, checks, GPUs, hosts, endpoints, policies, limits.
"""


def text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


OLDEST, NEWEST = text(HISTORY[0]), text(HISTORY[-1])


def chosen(header: str | None) -> str:
    """Return the microversion that *header* asks for.

    The header may speak of several services, separated by commas; the others do not concern us.
    Raises `MalformedVersion` and `UnsupportedVersion`.
    """
    if header is None:
        return OLDEST
    asked = [part.split() for part in header.split(",")]
    if any(len(words) != 2 for words in asked):
        raise errors.MalformedVersion(header=HEADER, given=header)
    ours = [version for service, version in asked if service == SERVICE]
    if not ours:
        return OLDEST
    if len(ours) > 1:
        raise errors.MalformedVersion(header=HEADER, given=header)
    wanted = ours[0]
    if wanted == "latest":
        return NEWEST
    if not re.fullmatch(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})", wanted, re.ASCII):
        raise errors.MalformedVersion(header=HEADER, given=header)
    if wanted not in map(text, HISTORY):
        raise errors.UnsupportedVersion(given=wanted, min_version=OLDEST, max_version=NEWEST)
    return wanted
