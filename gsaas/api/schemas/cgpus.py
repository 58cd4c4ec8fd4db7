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
        },
        optional=("mode", "memory_mb", "locality", "policy"),
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
        "policy": {"type": "string"},
    },
    title="Cgpus",
)

NEAREST = common.record(
    {name: CGPUS["properties"][name] for name in ("count", "mode", "memory_mb", "locality")},
    title="NearestFit",
    description="The largest request like the one made that would fit now.",
)

DROPPED = {
    "type": "array",
    "description": "How many GPUs each filter took away.",
    "items": common.record({"filter": {"type": "string"}, "gpus": {"type": "integer"}}),
}
