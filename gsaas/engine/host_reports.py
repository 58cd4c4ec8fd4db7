# SPDX-License-Identifier: Apache-2.0
"""What agents report and answer, as far as it may be stored. Pure.

1. A host may lie, and what it says is shown to operators and tenants, logged, and added up for all hosts together. So a
   report has exactly the fields that this release reads, and each value is judged alone (`gsaas.objects.received`).
2. What is not valid is left out, and never makes a daemon, a binding or an admission look as if it were gone: its GPU
   would be given to another lease. Such a daemon is reported as unresponsive, such a binding as not installed, and such
   an admission as one that no lease has.
3. What is no report at all is refused: one without its list of bindings, or of daemons, or without its serial.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from gsaas.objects import received
from gsaas.objects.daemon import DaemonState
from gsaas.objects.received import MAX_INTEGER, Fields, LeftOut

UNREADABLE = "unreadable"
"""Stands for an admission that is not valid; no lease has it."""

_COUNT = (0, 2**53)
"""Counters; JSON's other readers, such as those of browsers, know no larger integers."""
_MOST = 65535
"""Bindings, or daemons, of one host."""
_MOST_ADMISSIONS = 2**20
_MOST_KNOWN = 100
"""Fields that a monitor says it knows."""
_KEY = re.compile(r"[!-~]{1,255}")
_ADMISSION = re.compile(r"[0-9.]{7,15}:[0-9]{1,5}")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}")


def endpoint_report(report: Any, left_out: LeftOut | None = None) -> dict[str, Any]:
    """Return the *report* or the answer of an endpoint as it may be stored; raises `ValueError` if it is not one.

    Whether its address is believed is decided elsewhere. What is left out is counted by *left_out*, and a problem.
    """
    left_out = LeftOut() if left_out is None else left_out
    if not (isinstance(report, Mapping) and isinstance(report.get("bindings"), Mapping)):
        raise ValueError("the endpoint has sent an invalid report: it has no bindings")
    fields = Fields(report, "endpoint", left_out)
    stored = {
        "bindings": {
            port_id: _binding(port_id, binding, left_out)
            for port_id, binding in _keyed(report["bindings"], "bindings", left_out)
        },
        "gpu_address": fields.optional("gpu_address", received.text, 15),
        "conntrack": fields.optional("conntrack", _counts, "entries", "limit"),
        "traffic": left_out.named("traffic", _traffic, report.get("traffic", {}), _KEY, _MOST),
        "refusals": left_out.named("refusals", _refusals, report.get("refusals", {}), _KEY, _MOST),
        **_texts(report, fields, left_out),
    }
    return _reported(stored, report)


def gpu_host_report(report: Any, left_out: LeftOut | None = None) -> dict[str, Any]:
    """Return the *report* or the answer of a monitor on daemons and fence as it may be stored.

    It is `gsaas.objects.daemon.DaemonReport.to_dict()`. Raises `ValueError` if it is none. What is left out is counted
    by *left_out*, and a problem.
    """
    left_out = LeftOut() if left_out is None else left_out
    what = "the monitor has sent an invalid report: it has no"
    if not (isinstance(report, Mapping) and isinstance(report.get("daemons"), Mapping)):
        raise ValueError(f"{what} daemons")
    if "fence" not in report:
        raise ValueError(f"{what} fence")
    try:
        serial = received.integer(report.get("serial"), *_COUNT)
    except received.INVALID as error:
        raise ValueError(f"{what} serial: {error}") from None
    fields = Fields(report, "monitor", left_out)
    stored = {
        "serial": serial,
        "daemons": {
            key: _daemon(key, status, left_out)
            for key, status in _keyed(report["daemons"], "daemons", left_out)
        },
        "fence": None if report["fence"] is None else _fence(report["fence"], left_out),
        "middleware": fields.optional("middleware", received.matching, _VERSION),
        "knows": left_out.items(
            "what the monitor knows", received.name, report.get("knows", []), _MOST_KNOWN
        ),
        **_texts(report, fields, left_out),
    }
    return _reported(stored, report)


def _reported(stored: dict[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is *stored* without what was not in *report*: an agent of another release may not know it."""
    problems = {"problems": stored["problems"]} if stored["problems"] else {}
    return {name: value for name, value in stored.items() if name in report} | problems


def _keyed(
    found: Mapping[Any, Any], what: str, left_out: LeftOut
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the valid names of *found*, each with its object; whatever has no valid name is no lease's."""
    objects = left_out.named(what, lambda value: value, found, _KEY, _MOST)
    return [
        (key, left_out.optional(f"{what}, {key}", received.mapping, value) or {})
        for key, value in objects.items()
    ]


def _binding(port_id: str, data: Mapping[str, Any], left_out: LeftOut) -> dict[str, Any]:
    fields = Fields(data, f"the binding of {port_id}", left_out)
    drops = fields.optional("dropped_packets", received.mapping) or {}
    counters = Fields(drops, f"the packets of {port_id}", left_out)
    stored = {
        "installed": fields.optional("installed", received.boolean) or False,
        "seconds": fields.optional("seconds", received.number, 0, MAX_INTEGER),
        "dropped_packets": {
            reason: counters.optional(reason, received.integer, *_COUNT) or 0
            for reason in ("unmapped", "refused")
            if reason in drops
        },
    }
    return {name: value for name, value in stored.items() if name in data or name == "installed"}


def _traffic(data: Any) -> dict[str, int]:
    return _counts(data, "sent", "received", "connections")


def _refusals(data: Any) -> dict[str, Any]:
    data = received.mapping(data)
    reasons = [name for name in ("unmapped", "foreign", "not_tcp", "fragments") if name in data]
    counts: dict[str, Any] = _counts(data, "seconds", *reasons)
    source = data.get("source")
    return counts | ({} if source is None else {"source": str(ipaddress.IPv4Address(source))})


def _counts(data: Any, *names: str) -> dict[str, int]:
    data = received.mapping(data)
    return {name: received.integer(data[name], *_COUNT) for name in names}


def _daemon(key: str, data: Mapping[str, Any], left_out: LeftOut) -> dict[str, Any]:
    fields = Fields(data, f"daemon {key}", left_out)
    is_of_gpu = "lease_id" in data and data["lease_id"] is None
    stored = {
        # Without its lease it is some lease's, which is not known.
        "lease_id": None if is_of_gpu else fields.optional("lease_id", received.text, 36) or "",
        "position": fields.optional("position", received.integer, 0, MAX_INTEGER) or 0,
        "gpu_uuid": fields.optional("gpu_uuid", received.name) or "",
        "other_gpus": left_out.items(
            f"the GPUs of daemon {key}", received.name, data.get("other_gpus", []), _MOST
        ),
        "port": fields.optional("port", received.integer, 1, 65535) or 0,
        "ports": fields.optional("ports", received.integer, 1, 65535) or 1,
        "turn": fields.optional("turn", received.integer, 0, 1) or 0,
        "memory_mb": fields.optional("memory_mb", received.integer, 1, MAX_INTEGER),
        "state": fields.optional("state", DaemonState) or DaemonState.UNRESPONSIVE,
        "restarts": fields.optional("restarts", received.integer, 0, MAX_INTEGER) or 0,
        "detail": fields.optional("detail", received.text),
        "failed_starts": fields.optional("failed_starts", received.integer, 0, MAX_INTEGER) or 0,
    }
    optional = {"other_gpus", "ports", "turn", "failed_starts"} - data.keys()
    return {name: value for name, value in stored.items() if name not in optional}


def _fence(data: Any, left_out: LeftOut) -> dict[str, Any]:
    data = left_out.optional("fence", received.mapping, data) or {}
    listed = data.get("admissions")
    if not isinstance(listed, list) or len(listed) > _MOST_ADMISSIONS:
        left_out.note("fence", ValueError("it has no list of admissions"))
        listed = [None]
    admissions = [
        left_out.optional("admissions", received.matching, each, _ADMISSION) or UNREADABLE
        for each in listed
    ]
    refused = Fields(data, "fence", left_out).optional("refused", received.integer, *_COUNT)
    return {"admissions": admissions, "refused": refused or 0}


def _texts(report: Mapping[str, Any], fields: Fields, left_out: LeftOut) -> dict[str, Any]:
    """Return the problems and the release in *report*, in a form that may be shown."""
    return {
        "release": fields.optional("release", received.text, 64),
        "problems": left_out.problems(report.get("problems", [])),
    }
