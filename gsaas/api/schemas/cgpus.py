# SPDX-License-Identifier: Apache-2.0
"""Schemas of a request for cGPUs, which are the same in a launch, a check and a response."""

from __future__ import annotations

from gsaas.api import microversions
from gsaas.api.schemas import common
from gsaas.objects import device_kinds

MODES = ("exclusive", "shared")
LOCALITIES = ("any", "local", "remote")

MEMORY_WANTED = {
    "type": "integer",
    "description": "MiB of GPU memory per cGPU, required in shared mode",
}
MEMORY_REFUSED = {
    "not": {},
    "description": "absent in exclusive mode, which claims whole GPUs; mode shared claims parts of GPUs",
}

KIND = common.since(
    microversions.KINDS,
    {
        "enum": list(device_kinds.KINDS),
        "description": "The kind of the devices. cuda: GPUs of NVIDIA; cpu: cores and memory of hosts that compute as "
        "devices. A request without it is for the kind that the operator has chosen.",
    },
)

HOSTS = ("any", "one", "spread")

REQUIREMENTS = {
    "gpu_model": {
        **common.TEXT,
        "description": "Only GPUs whose model name contains this text, such as A100; case does not matter.",
    },
    "compute_capability": {
        "type": "string",
        "pattern": "^[0-9]{1,3}(\\.[0-9]{1,3})?$",
        "description": "Only GPUs of this CUDA compute capability, such as 8.0, or a higher one.",
    },
    "hosts": {
        "enum": list(HOSTS),
        "default": "any",
        "description": "any: on any GPU hosts; one: all cGPUs on one GPU host; spread: each cGPU on a "
        "different GPU host.",
    },
    "host": {**common.TEXT, "description": "Only GPUs of this GPU host."},
}
"""Requirements that a request may have; a response contains those of its request."""

REQUEST = {
    **common.record(
        {
            "count": {
                "type": "integer",
                "minimum": 1,
                "maximum": common.MAX_INTEGER,
                "description": "The number of cGPUs. The masked prefix and the middleware may allow fewer.",
            },
            "kind": KIND,
            "mode": {
                "enum": list(MODES),
                "default": "exclusive",
                "description": "exclusive: whole GPUs for this lease alone; shared: parts of GPUs.",
            },
            "memory_mb": {
                **common.MIB,
                "description": "MiB of GPU memory per cGPU; only in shared mode.",
            },
            "locality": {
                "enum": list(LOCALITIES),
                "default": "any",
                "description": "Where the VM or other consumer runs. any: on any host; local: on the "
                "host that has all its GPUs; remote: on a host that has none of them.",
            },
            "policy": {
                **common.TEXT,
                "maxLength": 64,
                "description": "The scheduling policy that chooses among the GPUs that fit: a name from "
                "GET /v1/policies.",
            },
            **REQUIREMENTS,
        },
        optional=("mode", "memory_mb", "locality", "policy", *REQUIREMENTS),
        title="CgpusRequest",
    ),
    "if": {"properties": {"mode": {"const": "shared"}}, "required": ["mode"]},
    "then": {"properties": {"memory_mb": MEMORY_WANTED}, "required": ["memory_mb"]},
    "else": {"properties": {"memory_mb": MEMORY_REFUSED}},
}

CGPUS = common.record(
    {
        "count": {"type": "integer"},
        "kind": KIND,
        "mode": {"enum": list(MODES)},
        "memory_mb": {
            "type": ["integer", "null"],
            "description": "MiB of GPU memory per cGPU; null in exclusive mode.",
        },
        "locality": {"enum": list(LOCALITIES)},
        "policy": {
            "type": ["string", "null"],
            "description": "The scheduling policy. Null while a request that names none is in the queue.",
        },
        **REQUIREMENTS,
    },
    optional=tuple(REQUIREMENTS),
    title="Cgpus",
)

NEAREST = common.record(
    {
        name: CGPUS["properties"][name]
        for name in ("count", "kind", "mode", "memory_mb", "locality", *REQUIREMENTS)
    },
    optional=tuple(REQUIREMENTS),
    title="NearestFit",
    description="The largest request of this kind that would fit now.",
)

FACTS = {"properties": {"nearest": common.nullable(NEAREST)}}
"""What of the facts of an error not every microversion has."""

RELAXED = {
    "enum": [None, "locality", *REQUIREMENTS],
    "description": "The requirement that the nearest request drops; null if it drops none.",
}

DROPPED = {
    "type": "array",
    "description": "The number of GPUs that each filter excluded. A GPU counts for the first one only.",
    "items": common.record({"filter": {"type": "string"}, "gpus": {"type": "integer"}}),
}
