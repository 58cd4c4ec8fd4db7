# SPDX-License-Identifier: Apache-2.0
"""What `gsaas` lists fits on a terminal of 80 columns, whatever names users and operators chose; `-c` cuts nothing.

Its times are those of the machine, and not ISO 8601's.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from wcwidth import wcswidth

from gsaas.api import schemas
from gsaasclient.cli import main

LONG = {
    "id": "28642596-0fcf-45aa-ba02-f3ba8468484c",
    "lease_id": "28642596-0fcf-45aa-ba02-f3ba8468484c",
    "uuid": "GPU-d39f3fd1-832a-5e0b-bd40-8c3e7841d35b",
    "name": "resnet-152-on-imagenet-第十七号",
    "host": "gpu-node-117.rack-4.hpc.example.org",
    "status": "PENDING",
    "project_id": "5bd18c4f8b8f4f0fb5d0a7b4a6564c5b",
    "model": "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
    "description": "the GPU host with the fewest leases first, and another policy within that host.",
    "source": "a paper on fragmentation, ATC'23",
    "compute_capability": "10.0",
    "mode": "shared",
    "memory_mb": 143771,
    "memory_mb_hours": 98765432.1,
    "used_mb": 143771,
    "free_mb": 13801960,
    "largest_share_mb": 143771,
    "reserved_mb": 143771,
    "gpus": 96,
    "count": 2046,
    "kept": 2046,
    "leases": 12345,
    "utilisation": 100.0,
    "disabled": True,
    "disabled_reason": "ECC errors since Tuesday; the vendor sends another one",
    "gpu_address": "fd00:1234:5678:9abc:def0:1234:5678:9abc",
    "currency": "EUR",
    "cost": "1234567.89",
    "unpriced_gpu_hours": 12345.67,
    "priority": -10,
    "estimate_seconds": 5300.0,
    "degraded": True,
    "created_at": "2026-10-28T05:06:07Z",
    "queued_at": "2026-10-28T05:06:07Z",
    "claimed_at": "2026-08-01T05:06:07Z",
    "released_at": "2026-11-08T04:06:07Z",
    "start": "2026-12-01T09:00:00Z",
    "end": "2026-12-13T22:30:00Z",
    "seen_at": "2026-11-28T05:06:07Z",
    "gpu_hours": 138240.456,
    "mean_utilisation": 100.0,
    "peak_utilisation": 100.0,
    "peak_memory_mb": 143771,
}
"""Long values by field. What has another type than its field is left out."""


def example(schema: dict[str, Any], name: str = "") -> Any:
    """Return a document of *schema*, with the values of `LONG`; what is not there is as short as can be."""
    value = LONG.get(name)
    if value is not None and Draft202012Validator(schema).is_valid(value):
        return value
    if "anyOf" in schema:
        return example(schema["anyOf"][0], name)
    if "enum" in schema:
        return max((word for word in schema["enum"] if word), key=len)
    if schema.get("format") == "date-time":
        return "2026-12-01T09:00:00.000000Z"
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    if kind == "object":
        fields = schema.get("properties", {}).items()
        return {field: example(inner, field) for field, inner in fields}
    if kind == "array":
        return [] if name.endswith("links") else [example(schema["items"])] * 2
    return {"string": "x", "integer": 1, "number": 0.5, "boolean": False}[kind]


LISTS = {
    "endpoints": schemas.endpoints.MANY,
    "gpus": schemas.gpus.MANY,
    "history": schemas.leases.MANY,
    "hosts": schemas.hosts.MANY,
    "limits": schemas.limits.SHOWN,
    "list": schemas.leases.MANY,
    "models": schemas.models.MANY,
    "policies": schemas.policies.MANY,
    "queue": schemas.queue.MANY,
    "reservations": schemas.reservations.MANY,
    "usage": schemas.usage.SHOWN,
}
"""The commands that list something, and what the API answers them."""


class Answering:
    """A client of an API that has one answer."""

    def __init__(self, document: Any) -> None:
        self._document = document

    def request(self, *_: Any, **__: Any) -> Any:
        return self._document


@pytest.fixture(params=sorted(LISTS))
def printed(request, monkeypatch, capsys):
    """Return what a command prints with further words."""
    command = request.param
    document = example(LISTS[command])
    Draft202012Validator(LISTS[command]).validate(document)
    monkeypatch.setattr(main, "_client", lambda _: Answering(document))

    def run(*words: str) -> str:
        assert main.main([command, *words]) == 0
        return capsys.readouterr().out

    def columns() -> list[str]:
        assert main.main([command, "-c", "none"]) == 2
        found = re.search("the columns are (.*)", capsys.readouterr().err)
        assert found is not None
        return found.group(1).split(", ")

    run.columns = columns  # type: ignore[attr-defined]
    return run


def test_a_table_fits_in_80_columns(printed):
    """What is not indented is a sentence, which a terminal breaks."""
    rows = [line for line in printed().splitlines() if line.startswith("  ")]
    assert rows
    assert [line for line in rows if wcswidth(line) > 80] == []


ISO = re.compile(r"[0-9]T[0-9]{2}:[0-9]{2}")


def test_a_column_that_is_picked_is_printed_in_full_and_its_times_as_people_write_them(printed):
    for name in printed.columns():
        values, full = printed("-c", name, "-f", "value"), printed("-c", name)
        assert "…" not in full
        assert not ISO.search(full)
        if name in ("id", "lease_id", "uuid", "host", "model", "project_id"):
            assert values.split("\n")[0] in full
