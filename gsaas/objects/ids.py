# SPDX-License-Identifier: Apache-2.0
"""The ids of leases and reservations: UUIDs, in the one spelling that GSaaS gives them.

A text that is not an id names nothing, whatever a database would compare it with.
"""

from __future__ import annotations

import re

_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_id(text: object) -> bool:
    """Return whether *text* is a UUID in its canonical form: lower case, with hyphens, nothing before or after it."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None
