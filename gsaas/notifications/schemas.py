# SPDX-License-Identifier: Apache-2.0
"""The JSON Schemas of notifications' payloads: what each of their fields is. `payloads` fills the fields. Pure.

A version changes with its content: the second number grows with a new field, the first one when a field is removed or
gets another meaning. A field of `LeasePayload` that is an attribute of a lease is written as soon as it is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gsaas.notifications import cadf
from gsaas.objects.access import Access
from gsaas.objects.device_kinds import KINDS
from gsaas.objects.lifecycle import Status
from gsaas.objects.request import ANY, LOCAL, REMOTE
from gsaas.objects.reservation import ReservationStatus

NAMESPACE = "gsaas"

VERSIONS = {
    "LeasePayload": "1.3",
    "LeaseDevicePayload": "1.0",
    "LeaseFaultPayload": "1.0",
    "GpuPayload": "1.0",
    "QuotaPayload": "1.0",
    "ReservationPayload": "1.0",
    "ReservedSharePayload": "1.0",
}

Schema = dict[str, Any]


def _of(kind: str, description: str = "", *, or_null: bool = False, **more: Any) -> Schema:
    """Return the schema of a value of the JSON type *kind*."""
    said = {"description": description} if description else {}
    return {"type": [kind, "null"] if or_null else kind, **more, **said}


def _text(description: str = "", *, or_null: bool = False) -> Schema:
    return _of("string", description, or_null=or_null)


def _time(description: str = "", *, or_null: bool = False) -> Schema:
    return _of("string", description, or_null=or_null, format="date-time")


def _number(minimum: int, description: str = "", *, or_null: bool = False) -> Schema:
    return _of("integer", description, or_null=or_null, minimum=minimum)


def _one_of(values: Iterable[str | None], description: str = "") -> Schema:
    said = {"description": description} if description else {}
    return {"enum": [value and str(value) for value in values], **said}


def _list_of(name: str, description: str = "") -> Schema:
    return _of("array", description, items={"$ref": f"{name}.json"})


def _object(
    properties: Mapping[str, Schema], *, optional: Iterable[str] = (), **more: Any
) -> Schema:
    """Return the schema of an object with these *properties* and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
        **more,
    }


_MODE = _one_of(("exclusive", "shared"))
_OWNER = {"project_id": _text(), "user_id": _text()}
_MEMORY = _number(1, "MiB of each cGPU in shared mode.", or_null=True)
_AT = _time("When the event happened. All times are UTC.")

PAYLOADS: Mapping[str, tuple[str, Mapping[str, Schema]]] = {
    "LeasePayload": (
        "A lease.",
        {
            "id": _text(),
            "name": _text(),
            **_OWNER,
            "status": _one_of(Status, "Its status after the event."),
            "at": _AT,
            "created_at": _time(),
            "updated_at": _time(),
            "queued_at": _time("When it joined the queue; null if it did not wait.", or_null=True),
            "claimed_at": _time("When it got its GPUs.", or_null=True),
            "released_at": _time("When its GPUs were returned.", or_null=True),
            "reclaim_at": _time(
                "When an idle lease, whose owner was warned, loses its GPUs unless something uses it before. "
                "New in 1.1.",
                or_null=True,
            ),
            "duration": _number(
                1,
                "Seconds that it was to last from when it has its GPUs. New in 1.3.",
                or_null=True,
            ),
            "ends_at": _time(
                "When it ends; null if it has no end, or has none before it has its GPUs. New in 1.3.",
                or_null=True,
            ),
            "cut_at": _time(
                "From when on connections of its programs may be cut, because a host of its GPUs is drained; null if "
                "they are not. New in 1.3.",
                or_null=True,
            ),
            "count": _number(1, "The number of its cGPUs."),
            "kind": _one_of(KINDS, "The kind of its devices. New in 1.2."),
            "mode": _MODE,
            "memory_mb": _MEMORY,
            "locality": _one_of((ANY, LOCAL, REMOTE)),
            "policy": _text("The policy that chose its GPUs.", or_null=True),
            "priority": _of("integer"),
            "remoting": _text("The remote-CUDA middleware."),
            "access": _one_of(
                (*Access, None), "How its consumer reaches its GPUs; null until it has them."
            ),
            "claimed_mb": _of(
                "integer", "MiB that it has claimed in all; stays after its release.", or_null=True
            ),
            "claimed_gpus": _of(
                "number", "The same in GPUs; a part of a GPU counts as that fraction.", or_null=True
            ),
            "server_id": _text("The id of its VM.", or_null=True),
            "server_host": _text("The host that runs its VM.", or_null=True),
            "consumer_host": _text("The host of its programs, if it has no VM.", or_null=True),
            "fault": {"anyOf": [{"type": "null"}, {"$ref": "LeaseFaultPayload.json"}]},
            "devices": _list_of(
                "LeaseDevicePayload", "Its cGPUs, when the notification was built."
            ),
        },
    ),
    "LeaseDevicePayload": (
        "One cGPU of a lease.",
        {
            "index": _number(0, "The device number that programs see."),
            "memory_mb": _number(1, "MiB of the GPU's memory."),
            "gpu_uuid": _text("The UUID that NVML reports."),
            "gpu_host": _text("The name of the GPU's host."),
        },
    ),
    "LeaseFaultPayload": (
        "Why a lease failed.",
        {
            "step": _text("The step that failed.", or_null=True),
            "message": _text("The reason, in a sentence."),
        },
    ),
    "GpuPayload": (
        "A GPU that was withdrawn, or has returned.",
        {
            "uuid": _text("The UUID that NVML reports."),
            "host": _text(),
            "model": _text(),
            "memory_mb": _number(1),
            "withdrawn_reason": _text(
                "Why it was withdrawn; null if it has returned.", or_null=True
            ),
            "awaits_operator": _of(
                "boolean", "Whether it stays withdrawn until an operator enables it."
            ),
            "at": _time("When it happened, UTC."),
        },
    ),
    "QuotaPayload": (
        "A launch that was refused because of a quota.",
        {
            **_OWNER,
            "request_id": _text("The id of the request, as in the service's log."),
            "reason": _text("Which quota, in a sentence."),
            "count": _number(1, "The number of cGPUs asked for."),
            "mode": _MODE,
            "memory_mb": _MEMORY,
        },
    ),
    "ReservationPayload": (
        "A reservation.",
        {
            "id": _text(),
            "name": _text(),
            **_OWNER,
            "status": _one_of(ReservationStatus, "Its status after the event."),
            "at": _AT,
            "created_at": _time(),
            "start": _time(),
            "end": _time("When it was to end; `at` of reservation.end says when it did."),
            "count": _number(1, "The number of its cGPUs."),
            "mode": _MODE,
            "memory_mb": _MEMORY,
            "shares": _list_of("ReservedSharePayload"),
        },
    ),
    "ReservedSharePayload": (
        "One cGPU of a reservation.",
        {
            "index": _number(0),
            "memory_mb": _number(1),
            "gpu_uuid": _text(),
            "gpu_host": _text("null if the GPU is gone.", or_null=True),
            "kept": _of("boolean", "Whether the reservation has it: no other lease gets it."),
            "lease_id": _text("The lease of the reservation that has it.", or_null=True),
            "moved_from": _text(
                "The UUID of the GPU that it was on before this event; null if the event has not moved it.",
                or_null=True,
            ),
        },
    ),
}
"""Name of a payload -> what it is about, and the schemas of its fields."""

SECURITY_EVENT = _object(
    {
        "typeURI": {"const": "http://schemas.dmtf.org/cloud/audit/1.0/event"},
        "eventType": {"const": "activity"},
        "id": _text(),
        "eventTime": _text(),
        "action": _one_of(
            ("authenticate", "read", "read/list", "create", "update", "delete", "enable", "disable")
        ),
        "outcome": _one_of(("success", "failure")),
        "initiator": _object(
            {
                "id": _text(),
                "typeURI": {"const": "service/security/account/user"},
                "host": _object({"address": _text(), "agent": _text()}, optional=["agent"]),
                "project_id": _text(),
                "request_id": _text(),
            },
            optional=["project_id", "request_id"],
            description="Who did it: the user, and the address that the request or the grant came from.",
        ),
        "target": _object(
            {"id": _text(), "typeURI": _of("string", pattern=f"^{cadf.SERVICE}")},
            description="What it was about.",
        ),
        "observer": _object(
            {"id": _text(), "typeURI": {"const": cadf.SERVICE}},
            description="The publisher that saw it.",
        ),
        "reason": _object(
            {
                "reasonType": _one_of(("HTTP", "gsaas")),
                "reasonCode": _text(),
                "policyType": {"const": "gsaas"},
                "policyId": _text(),
            },
            optional=["policyType", "policyId"],
            description="The HTTP status, if it came by HTTP, and the code of the error.",
        ),
        "requestPath": _text("The path of the request."),
    },
    optional=["requestPath"],
    description="A security event in the form of CADF (DMTF DSP0262).",
)


def _payload(name: str) -> Schema:
    about, fields = PAYLOADS[name]
    return _object(
        {
            "gsaas_object.name": {"const": name},
            "gsaas_object.namespace": {"const": NAMESPACE},
            "gsaas_object.version": {"const": VERSIONS[name]},
            "gsaas_object.data": _object(fields),
        },
        description=about,
    )


def schemas() -> dict[str, Schema]:
    """Return the schema of every payload, by name; they refer to each other by `NAME.json`."""
    found = {**{name: _payload(name) for name in PAYLOADS}, "SecurityEvent": SECURITY_EVENT}
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {name: {"$schema": dialect, "title": name, **schema} for name, schema in found.items()}
