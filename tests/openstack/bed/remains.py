# SPDX-License-Identifier: Apache-2.0
"""What Neutron and Nova leave in the kernel when they end, and how it is taken away.

1. Before the bed starts anything, it notes what of this kind is there. That is somebody else's.
2. What is there afterwards under the names that Neutron gives is the bed's, and goes with it.
3. The note is kept until all of it is gone, so an interrupted `down` is simply repeated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from tests.openstack.bed import commands, files
from tests.openstack.bed.errors import BedError
from tests.openstack.bed.settings import DIR

NOTE = DIR / "before.json"

NAMESPACE = re.compile(r"q(dhcp|router)-[0-9a-f-]{36}")
LINK = re.compile(r"(tap|q(br|vb|vo|r-))[0-9a-f]{8}-[0-9a-f]{2}|br-int|ovs-netdev")
CHAIN = re.compile(r"neutron-\S+")
FIREWALLS = ("iptables", "ip6tables")


def remember() -> None:
    """Note what is there before the bed is, unless that is noted."""
    if not NOTE.exists():
        files.write(NOTE, json.dumps({"namespaces": _namespaces(), "links": _links()}))


def remove() -> None:
    """Take away what came since."""
    if not NOTE.exists():
        return
    before = json.loads(NOTE.read_text())
    for name in set(_namespaces()) - set(before["namespaces"]):
        commands.run("ip", "netns", "delete", name)
    for name in sorted(set(_links()) - set(before["links"])):
        remove_link(name)
    for program in FIREWALLS:
        script = without_neutron(commands.run(f"{program}-save").splitlines())
        if script:
            commands.run(f"{program}-restore", "--noflush", text="\n".join(script) + "\n")
    NOTE.unlink()


def remove_link(name: str) -> None:
    """Take a link away, unless it goes by itself, a moment after the other end of its pair or its namespace."""
    try:
        commands.run("ip", "link", "delete", name)
    except BedError:
        if name in _names("link", "ifname"):
            raise


def without_neutron(saved: Iterable[str]) -> list[str]:
    """The input for `iptables-restore --noflush` that removes Neutron's part of *saved*.

    *saved* are the lines of `iptables-save`. Rules of others are not mentioned, so they stay.
    """
    script: list[str] = []
    table = ""
    jumps: list[str] = []
    chains: list[str] = []
    for line in saved:
        if line.startswith("*"):
            table, jumps, chains = line, [], []
        elif line.startswith(":") and CHAIN.match(line, 1):
            chains.append(line[1:].split()[0])
        elif line.startswith("-A ") and not CHAIN.match(line, 3):
            if re.search(rf" -[jg] {CHAIN.pattern}", line):
                jumps.append("-D" + line[2:])
        elif line == "COMMIT" and chains:
            emptied = [f"-F {chain}" for chain in chains]
            removed = [f"-X {chain}" for chain in chains]
            script += [table, *jumps, *emptied, *removed, line]
    return script


def _namespaces() -> list[str]:
    return [name for name in _names("netns", "name") if NAMESPACE.fullmatch(name)]


def _links() -> list[str]:
    return [name for name in _names("link", "ifname") if LINK.fullmatch(name)]


def _names(noun: str, key: str) -> list[str]:
    return [entry[key] for entry in json.loads(commands.run("ip", "-j", noun, "list") or "[]")]
