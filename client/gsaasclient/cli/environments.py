# SPDX-License-Identifier: Apache-2.0
"""The environment of a command that uses a lease. Pure: values in, values out."""

from __future__ import annotations

from collections.abc import Mapping

SEARCH_PATH = "LD_LIBRARY_PATH"
"""The only variable of a lease that extends the value which is there already."""


def merged(own: Mapping[str, str], of_lease: Mapping[str, str]) -> dict[str, str]:
    """Return the environment *own* with the variables *of_lease*.

    The lease's directories of libraries come before those that the user has, and do not replace them: programs may
    need both. They are not added a second time.
    """
    both = {**own, **of_lease}
    theirs, ours = own.get(SEARCH_PATH), of_lease.get(SEARCH_PATH)
    if theirs and ours:
        both[SEARCH_PATH] = theirs if f":{ours}:" in f":{theirs}:" else f"{ours}:{theirs}"
    return both
