"""What a request for cGPUs looks like: the same in a launch, a check and an answer."""

from __future__ import annotations

from gsaas.api.schemas import common

MODES = ("exclusive", "shared")
LOCALITIES = ("any", "local", "remote")

MEMORY_WANTED = {
    "type": "integer",
    "description": "MiB of GPU memory per cGPU, needed in shared mode",
}
MEMORY_REFUSED = {
    "not": {},
    "description": "left out in exclusive mode, which gives whole GPUs; mode shared gives shares",
}

HOSTS = ("any", "one", "spread")

REQUIREMENTS = {
    "gpu_model": {
        **common.TEXT,
        "description": "Only GPUs whose model contains this, in upper or lower case: A100.",
    },
    "compute_capability": {
        "type": "string",
        "pattern": "^[0-9]{1,3}(\\.[0-9]{1,3})?$",
        "description": "Only GPUs of this CUDA compute capability or a higher one: 8.0.",
    },
    "hosts": {
        "enum": list(HOSTS),
        "default": "any",
        "description": "All cGPUs on one GPU host, or each on a host of its own.",
    },
    "host": {**common.TEXT, "description": "Only GPUs of this GPU host."},
}
"""What a request may insist on; an answer has those that were asked for."""

REQUEST = {
    **common.record(
        {
            "count": {
                "type": "integer",
                "minimum": 1,
                "maximum": common.MAX_INTEGER,
                "description": "How many cGPUs; the masked prefix and the middleware may allow fewer.",
            },
            "mode": {
                "enum": list(MODES),
                "default": "exclusive",
                "description": "Whole GPUs for this lease alone, or shares of GPUs.",
            },
            "memory_mb": {**common.MIB, "description": "MiB per cGPU; in shared mode only."},
            "locality": {
                "enum": list(LOCALITIES),
                "default": "any",
                "description": "Where the VM runs: anywhere, with its GPUs, or away from them.",
            },
            "policy": {
                **common.TEXT,
                "maxLength": 64,
                "description": "How to choose among GPUs that fit: a name from GET /v1/policies.",
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
        "mode": {"enum": list(MODES)},
        "memory_mb": {
            "type": ["integer", "null"],
            "description": "MiB per cGPU; null in exclusive mode.",
        },
        "locality": {"enum": list(LOCALITIES)},
        "policy": {
            "type": ["string", "null"],
            "description": "Null while the default is to choose, and nothing is chosen yet.",
        },
        **REQUIREMENTS,
    },
    optional=tuple(REQUIREMENTS),
    title="Cgpus",
)

NEAREST = common.record(
    {
        name: CGPUS["properties"][name]
        for name in ("count", "mode", "memory_mb", "locality", *REQUIREMENTS)
    },
    optional=tuple(REQUIREMENTS),
    title="NearestFit",
    description="The largest request like the one made that would fit now.",
)

RELAXED = {
    "enum": [None, "locality", *REQUIREMENTS],
    "description": "The requirement that the nearest request gives up, if it has to.",
}

DROPPED = {
    "type": "array",
    "description": "How many GPUs each filter took away.",
    "items": common.record({"filter": {"type": "string"}, "gpus": {"type": "integer"}}),
}
