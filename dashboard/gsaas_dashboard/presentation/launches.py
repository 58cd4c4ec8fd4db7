# SPDX-License-Identifier: Apache-2.0
"""What the launch page asks for, as the API takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gsaas_dashboard.presentation import models

NO_VM = "none"
"""The image of a lease without a VM."""
NO_WAIT, FOREVER = "no", "forever"
WAITS = {
    NO_WAIT: None,
    "600": 600,
    "3600": 3600,
    "86400": 86400,
}
"""What the page offers -> seconds in the queue. `FOREVER` is the other one, without a limit."""

DURATIONS = {"": None, "3600": 3600, "28800": 28800, "86400": 86400, "604800": 604800}
"""What the page offers -> seconds for which a lease has its cGPUs."""


def cgpus(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cGPUs that the *form* asks for: its fields that have a value, as `cgpus` of a launch."""
    asked: dict[str, Any] = {"count": form["count"], "mode": form["mode"]}
    if form["mode"] == "shared" and form.get("memory_mb"):
        asked["memory_mb"] = form["memory_mb"]
    asked |= models.requirement(form.get("gpu_model") or "")
    for name in ("locality", "policy", "compute_capability", "hosts"):
        if form.get(name) not in (None, "", "any"):
            asked[name] = form[name]
    return asked


def lease(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the launch that the *form* asks for."""
    fields: dict[str, Any] = {"cgpus": cgpus(form), "server": server(form)}
    if form.get("name"):
        fields["name"] = form["name"]
    wait = form.get("wait") or NO_WAIT
    if wait == FOREVER:
        fields["wait"] = None
    elif WAITS[wait] is not None:
        fields["wait"] = WAITS[wait]
    if (duration := DURATIONS[form.get("duration") or ""]) is not None:
        fields["duration"] = duration
    return fields


def server(form: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return Nova's fields of the VM; None for a lease without one."""
    if form.get("image") == NO_VM:
        return None
    fields: dict[str, Any] = {}
    for name, field in (
        ("image", "imageRef"),
        ("flavor", "flavorRef"),
        ("key_name", "key_name"),
        ("name", "name"),
    ):
        if form.get(name):
            fields[field] = form[name]
    if form.get("network"):
        fields["networks"] = [{"uuid": form["network"]}]
    return fields


def is_shared_without_memory(form: Mapping[str, Any]) -> bool:
    """Whether the *form* asks for parts of GPUs without saying how large."""
    return form.get("mode") == "shared" and not form.get("memory_mb")
