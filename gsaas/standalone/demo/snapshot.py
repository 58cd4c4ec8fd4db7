# SPDX-License-Identifier: Apache-2.0
"""Snapshots of this machine's network configuration, to compare before and after. Taken with `ip` and `nft`."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

Snapshot = dict[str, frozenset[str]]
"""Kind of object (`links`, `routes`, ...) -> a line for each object."""


def take(prefix: str) -> Snapshot:
    """Return a snapshot. It has only those network namespaces whose names begin with *prefix*."""
    return {
        "network namespaces": namespaces(prefix),
        "links": frozenset(link["ifname"] for link in _ip("link", "show")),
        "addresses": frozenset(
            f"{address['local']}/{address['prefixlen']} on {link['ifname']}"
            for link in _ip("address", "show")
            for address in link["addr_info"]
        ),
        "routes": frozenset(
            f"{route['dst']} dev {route.get('dev')}"
            for route in _ip("route", "show", "table", "all")
        ),
        "nftables rules": frozenset(_rules()),
    }


def namespaces(prefix: str) -> frozenset[str]:
    """Return the names of the network namespaces that begin with *prefix*."""
    names = (namespace["name"] for namespace in _ip("netns"))
    return frozenset(name for name in names if name.startswith(prefix))


def differences(before: Snapshot, after: Snapshot) -> list[str]:
    """Return one line for each object that was added or removed."""
    lines = []
    for kind in before:
        lines += [f"{kind}: {name} was added" for name in sorted(after[kind] - before[kind])]
        lines += [f"{kind}: {name} was removed" for name in sorted(before[kind] - after[kind])]
    return lines


def lasting_differences(before: Snapshot, prefix: str, timeout: float = 5) -> list[str]:
    """Return the differences between *before* and now, once none of them is of GSaaS or after *timeout* seconds.

    It waits because the kernel removes the links of a removed namespace asynchronously.
    """
    deadline = time.monotonic() + timeout
    while True:
        left = differences(before, take(prefix))
        if not any(is_of_gsaas(line, prefix) for line in left) or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def is_of_gsaas(difference: str, prefix: str) -> bool:
    """Return whether a line of `differences` is about an object that GSaaS made, and not another program.

    All names of such objects contain *prefix* or `rodvr`.
    """
    return prefix in difference or "rodvr" in difference


def _ip(*words: str) -> list[dict[str, Any]]:
    """Run `ip -j` and return the objects that it lists; without any, some versions print nothing at all."""
    output = _output("ip", "-j", *words)
    objects: list[dict[str, Any]] = json.loads(output) if output.strip() else []
    return objects


def _rules() -> list[str]:
    """Return a line for every object of the nftables ruleset: its kind, its place and its handle."""
    objects = json.loads(_output("nft", "-j", "-s", "list", "ruleset"))["nftables"]
    places = ("family", "table", "chain", "name", "handle")
    return [
        " ".join([kind, *(str(fields[place]) for place in places if place in fields)])
        for entry in objects
        for kind, fields in entry.items()
        if kind != "metainfo"
    ]


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
