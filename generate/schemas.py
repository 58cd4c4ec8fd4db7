# SPDX-License-Identifier: Apache-2.0
"""The files of the JSON Schemas of notifications' payloads, which `gsaas.notifications.schemas` describes."""

from __future__ import annotations

import json

from gsaas.notifications.schemas import schemas

FOLDER = "doc/notification-schemas"


def files() -> dict[str, str]:
    """Return the text of a file for each schema, by its path as if it were in the source tree."""
    return {
        f"{FOLDER}/{name}.json": json.dumps(schema, indent=2) + "\n"
        for name, schema in schemas().items()
    }
