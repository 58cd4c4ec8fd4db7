# SPDX-License-Identifier: Apache-2.0
"""Schemas of models of GPUs."""

from __future__ import annotations

from gsaas.api.schemas import common
from gsaas.objects import device_kinds

MODEL = common.record(
    {
        "model": {"type": "string", "description": "What gpu_model of a request is compared with."},
        "kind": {
            "enum": list(device_kinds.KINDS),
            "description": "cuda: a GPU of NVIDIA; cpu: cores and memory of its host.",
        },
        "compute_capability": {"type": ["string", "null"]},
        "memory_mb": {"type": "integer", "description": "MiB of one GPU."},
        "gpus": {"type": "integer", "description": "GPUs that new leases may get."},
        "idle": {
            "type": "integer",
            "description": "GPUs that a lease in exclusive mode may get now.",
        },
        "free_mb": {
            "type": "integer",
            "description": "MiB that leases in shared mode may get now, of all these GPUs together.",
        },
        "largest_share_mb": {
            "type": "integer",
            "description": "MiB of the largest share that fits now: it has to be on one GPU.",
        },
    },
    title="Model",
    description="GPUs that do not differ in what a request may ask for. Those that are out of service, or whose host "
    "is silent, do not count, and what is kept for reservations is not free.",
)

MANY = common.record({"models": {"type": "array", "items": MODEL}})
