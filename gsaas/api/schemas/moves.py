# SPDX-License-Identifier: Apache-2.0
"""Schemas of moves: cGPUs of a lease go to other GPUs."""

from __future__ import annotations

from gsaas.api.schemas import common
from gsaas.objects.move import Kind, Stage

CREATE = common.record(
    {
        "move": common.record(
            {
                "index": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": common.MAX_INTEGER,
                    "description": "The cGPU that is to move, by its number in the lease; by default all do.",
                },
                "gpu": {**common.TEXT, "description": "The UUID of the GPU that it is to go to."},
                "host": {
                    **common.TEXT,
                    "description": "The host whose GPUs it is to go to; cGPUs that are there stay.",
                },
                "force": {
                    "type": "boolean",
                    "description": "Open connections may be cut; what programs have on the GPUs is lost.",
                },
                "dry_run": {
                    "type": "boolean",
                    "description": "Answer what would be done, and do nothing.",
                },
            },
            optional=("index", "gpu", "host", "force", "dry_run"),
        )
    }
)

_PLACE = common.record({"gpu_uuid": {"type": "string"}, "gpu_host": {"type": "string"}})

SHOWN = common.record(
    {
        "move": common.record(
            {
                "lease_id": {"type": "string"},
                "kind": {
                    "enum": [*Kind],
                    "description": "idle: it is made only if no connection is open then; cut: it ends those that are.",
                },
                "connections": {
                    "type": ["integer", "null"],
                    "description": "Connections that were open at the last report of the endpoint; null: not known.",
                },
                "stage": {
                    "anyOf": [{"enum": [*Stage]}, {"type": "null"}],
                    "description": "How far it is; null: it was not begun, because that is what was asked for.",
                },
                "cgpus": {
                    "type": "array",
                    "items": common.record(
                        {"index": {"type": "integer"}, "from": _PLACE, "to": _PLACE}
                    ),
                },
            },
            title="Move",
        )
    }
)
