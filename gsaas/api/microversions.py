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

1.0: leases, checks, GPUs, hosts, endpoints, policies.
"""


def text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


OLDEST, NEWEST = text(HISTORY[0]), text(HISTORY[-1])


def chosen(header: str | None) -> str:
    """Return the microversion that *header* asks for; raises `MalformedVersion`, `UnsupportedVersion`.

    The header may speak of several services, separated by commas; the others are none of our business.
    """
    asked = [
        words[1:] for part in (header or "").split(",") if (words := part.split())[:1] == [SERVICE]
    ]
    if not asked:
        return OLDEST
    if len(asked) > 1 or len(asked[0]) != 1:
        raise errors.MalformedVersion(header=HEADER, given=header)
    wanted = asked[0][0]
    if wanted == "latest":
        return NEWEST
    if not re.fullmatch(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})", wanted, re.ASCII):
        raise errors.MalformedVersion(header=HEADER, given=header)
    if wanted not in map(text, HISTORY):
        raise errors.UnsupportedVersion(given=wanted, min_version=OLDEST, max_version=NEWEST)
    return wanted
