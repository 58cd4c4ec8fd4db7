# SPDX-License-Identifier: Apache-2.0
"""What agents report and answer, as far as it may be stored. Pure.

A host may lie, and what it says is shown to operators and tenants, logged, and added up for all hosts together. So a
report has exactly the fields that this release reads, every number is finite and has a bound, and every text is one
printable line. Problems beyond a few, and what is too long of them, are left out: an honest host may have many.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema
from jsonschema import Draft202012Validator

from gsaas.objects.daemon import DaemonState
from gsaas.objects.printable import one_line

MOST_PROBLEMS = 100
"""Problems that are stored of one report."""
LONGEST = 1024
"""Characters that are stored of one problem."""

_NAME = {"type": "string", "minLength": 1, "maxLength": 255}
_RELEASE = {"type": "string", "maxLength": 64}
_COUNT = {"type": "integer", "minimum": 0, "maximum": 2**53}
"""Counters; JSON's other readers, such as those of browsers, know no larger integers."""
_SMALL = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_TEXTS = {"type": "array", "items": {"type": "string"}}


def _record(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


_BINDING = _record(
    ["installed"],
    installed={"type": "boolean"},
    seconds={"type": ["number", "null"], "minimum": 0, "maximum": 2**31},
    dropped_packets=_record([], unmapped=_COUNT, refused=_COUNT),
)
_TRAFFIC = _record(
    ["sent", "received", "connections"], sent=_COUNT, received=_COUNT, connections=_COUNT
)
_ENDPOINT = {
    "type": "object",
    "required": ["bindings"],
    "properties": {
        "bindings": {
            "type": "object",
            "maxProperties": 65535,
            "propertyNames": {"pattern": r"^[!-~]{1,255}\Z"},
            "additionalProperties": _BINDING,
        },
        "problems": _TEXTS,
        "release": _RELEASE,
        "gpu_address": {"type": ["string", "null"], "maxLength": 15},
        "conntrack": {
            "anyOf": [
                _record(["entries", "limit"], entries=_COUNT, limit=_COUNT),
                {"type": "null"},
            ]
        },
        "traffic": {  # agents of the release before do not report it
            "type": "object",
            "maxProperties": 65535,
            "propertyNames": {"pattern": r"^[!-~]{1,255}\Z"},
            "additionalProperties": _TRAFFIC,
        },
    },
}
_DAEMON = _record(
    ["lease_id", "position", "gpu_uuid", "port", "memory_mb", "state", "restarts", "detail"],
    lease_id={"type": ["string", "null"], "maxLength": 36},
    position=_SMALL,
    gpu_uuid=_NAME,
    port={"type": "integer", "minimum": 1, "maximum": 65535},
    memory_mb={"type": ["integer", "null"], "minimum": 1, "maximum": 2**31 - 1},
    state={"enum": list(DaemonState)},
    restarts=_SMALL,
    detail={"type": ["string", "null"]},
    failed_starts=_SMALL,  # agents of the release before do not report it
)
_GPU_HOST = {
    "type": "object",
    "required": ["serial", "daemons", "fence", "problems"],
    "properties": {
        "serial": _COUNT,
        "daemons": {
            "type": "object",
            "maxProperties": 65535,
            "propertyNames": {"pattern": r"^[!-~]{1,255}\Z"},
            "additionalProperties": _DAEMON,
        },
        "fence": {
            "type": ["object", "null"],
            "required": ["admissions", "refused"],
            "properties": {
                "admissions": {
                    "type": "array",
                    "maxItems": 2**20,
                    "items": {"type": "string", "pattern": r"^[0-9.]{7,15}:[0-9]{1,5}\Z"},
                },
                "refused": _COUNT,
            },
            "additionalProperties": False,
        },
        "problems": _TEXTS,
        "middleware": {
            "type": ["string", "null"],
            "pattern": r"^[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}\Z",
        },
        "release": _RELEASE,
    },
}


def endpoint_report(report: Any) -> dict[str, Any]:
    """Return the *report* or the answer of an endpoint as it may be stored; raises `ValueError` if it is not one.

    Whether its address is believed is decided elsewhere.
    """
    _check(_ENDPOINT_VALIDATOR, report, "the endpoint")
    return {**_known(report, _ENDPOINT), **_texts(report)}


def gpu_host_report(report: Any) -> dict[str, Any]:
    """Return the *report* or the answer of a monitor on daemons and fence as it may be stored.

    It is `gsaas.objects.daemon.DaemonReport.to_dict()`. Raises `ValueError` if it is none.
    """
    _check(_GPU_HOST_VALIDATOR, report, "the monitor")
    daemons = {
        key: {**status, "detail": status["detail"] and one_line(status["detail"], LONGEST)}
        for key, status in report["daemons"].items()
    }
    return {**_known(report, _GPU_HOST), **_texts(report), "daemons": daemons}


def _known(report: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of *report* that are in *schema*: an agent of a newer release may send others."""
    return {name: value for name, value in report.items() if name in schema["properties"]}


def _texts(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the problems and the release in *report*, if it has them, in a form that may be shown."""
    texts: dict[str, Any] = {}
    if "problems" in report:
        problems = report["problems"]
        texts["problems"] = [one_line(problem, LONGEST) for problem in problems[:MOST_PROBLEMS]]
        if len(problems) > MOST_PROBLEMS:
            texts["problems"].append(f"and {len(problems) - MOST_PROBLEMS} more problems")
    if "release" in report:
        texts["release"] = one_line(report["release"], 64)
    return texts


def _is_integer(_checker: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(checker: Any, value: Any) -> bool:
    # JSON as Python reads it has NaN, which is neither less nor more than any bound.
    return _is_integer(checker, value) or (isinstance(value, float) and math.isfinite(value))


_Validator = jsonschema.validators.extend(  # type: ignore[no-untyped-call]  # the stubs leave it untyped
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_integer, "number": _is_number}
    ),
)
_ENDPOINT_VALIDATOR = _Validator(_ENDPOINT)
_GPU_HOST_VALIDATOR = _Validator(_GPU_HOST)


def _check(validator: Any, report: Any, agent: str) -> None:
    """Raise `ValueError` for an invalid report. Its text, which is logged, names no value: that may have any size."""
    error = next(validator.iter_errors(report), None)
    if error is not None:
        where = one_line(error.json_path, 200)
        raise ValueError(
            f"{agent} has sent an invalid report: {where} violates {error.validator!r}"
        )
