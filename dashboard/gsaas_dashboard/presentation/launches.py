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
SERVER_FIELDS = {"image": "imageRef", "flavor": "flavorRef", "key_name": "key_name", "name": "name"}
"""Field of the page -> Nova's, whose value is the same. The network is the other one."""


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
    """Return Nova's fields of the VM, without those that the cloud is to choose; None for a lease without a VM."""
    if form.get("image") == NO_VM:
        return None
    fields: dict[str, Any] = {}
    for name, field in SERVER_FIELDS.items():
        if form.get(name):
            fields[field] = form[name]
    if form.get("network"):
        fields["networks"] = [{"uuid": form["network"]}]
    return fields


def is_shared_without_memory(form: Mapping[str, Any]) -> bool:
    """Whether the *form* asks for parts of GPUs without saying how large."""
    return form.get("mode") == "shared" and not form.get("memory_mb")


def undecided(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return a sentence for each field that has to be filled in after all, from the *facts* of a refusal."""
    pages = {field: name for name, field in SERVER_FIELDS.items()} | {"networks": "network"}
    found = {}
    for each in facts.get("missing") or ():
        name = pages[each["field"]]
        there = "choose one" if each["names"] else "your project can use none"
        found[name] = f"This cloud has no default {name} for your project: {there}."
    return found
