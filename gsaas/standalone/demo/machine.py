"""What this machine's network looks like, to compare before and after. Asked of `ip` and `nft`."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

Picture = dict[str, frozenset[str]]
"""What is there, by kind."""


def picture(prefix: str) -> Picture:
    """Take one. Of network namespaces only those with *prefix*: others' come and go."""
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
    """The network namespaces whose names begin with *prefix*."""
    names = (namespace["name"] for namespace in _ip("netns"))
    return frozenset(name for name in names if name.startswith(prefix))


def differences(before: Picture, after: Picture) -> list[str]:
    """What came and what went, one line each."""
    lines = []
    for kind in before:
        lines += [f"{kind}: {thing} came" for thing in sorted(after[kind] - before[kind])]
        lines += [f"{kind}: {thing} went" for thing in sorted(before[kind] - after[kind])]
    return lines


def settled(before: Picture, prefix: str, patience: float = 5) -> list[str]:
    """The differences that stay for *patience* seconds, if any of them is ours.

    The kernel takes the links of a removed namespace down in its own time.
    """
    deadline = time.monotonic() + patience
    while True:
        left = differences(before, picture(prefix))
        if not any(ours(line, prefix) for line in left) or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


def ours(difference: str, prefix: str) -> bool:
    """Whether GSaaS made it: all that it makes is named with the prefix, or after RODVR.

    Other programs change the network meanwhile, too. That is no matter of ours.
    """
    return prefix in difference or "rodvr" in difference


def _ip(*words: str) -> list[dict[str, Any]]:
    output = _output("ip", "-j", *words)
    return json.loads(output) if output.strip() else []


def _rules() -> list[str]:
    """Every object of the ruleset by its kind, its place and its handle."""
    objects = json.loads(_output("nft", "-j", "-s", "list", "ruleset"))["nftables"]
    places = ("family", "table", "chain", "name", "handle")
    return [
        " ".join([kind, *(str(thing[place]) for place in places if place in thing)])
        for entry in objects
        for kind, thing in entry.items()
        if kind != "metainfo"
    ]


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
