"""What the network services leave in the kernel when they end, and how it is taken away.

Only what is provably the bed's: namespaces of networks and routers in its own database, bridges of
ports on its own switch, and the chains that Neutron named after itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.openstack.bed import commands, database, switch

NEUTRON_CHAIN = re.compile(r"neutron-\S+")


@dataclass
class Remains:
    """Names of network namespaces, bridges of servers, and of virtual links between the two."""

    namespaces: list[str] = field(default_factory=list)
    bridges: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


def find() -> Remains:
    """Ask the bed's database and switch, which have to be running, what is theirs."""
    owned = database.query(
        "SELECT CONCAT('qdhcp-', id) FROM networks UNION SELECT CONCAT('qrouter-', id) FROM routers",
        database="neutron",
    )
    suffixes = [port[3:] for port in switch.ports() if port.startswith("qvo")]
    return Remains(
        namespaces=owned,
        bridges=[f"qbr{suffix}" for suffix in suffixes],
        links=[f"qvo{suffix}" for suffix in suffixes],
    )


def remove(remains: Remains) -> None:
    """Take away what of *remains* is there."""
    namespaces = {entry["name"] for entry in _ip("netns", "list")}
    for name in namespaces.intersection(remains.namespaces):
        commands.run("ip", "netns", "delete", name)
    links = {entry["ifname"] for entry in _ip("link", "show")}
    for name in links.intersection([*remains.bridges, *remains.links]):
        commands.run("ip", "link", "delete", name)
    for program in ("iptables", "ip6tables"):
        remove_chains(program)


def remove_chains(program: str) -> None:
    """Remove Neutron's chains and the jumps to them, in one transaction per table."""
    script = without_neutron(commands.run(f"{program}-save").splitlines())
    if script:
        commands.run(f"{program}-restore", "--noflush", text="\n".join(script) + "\n")


def without_neutron(saved: Iterable[str]) -> list[str]:
    """The input for `iptables-restore --noflush` that removes Neutron's part of *saved*.

    *saved* are the lines of `iptables-save`. Rules of others are not mentioned, so they stay.
    """
    script: list[str] = []
    table: str = ""
    jumps: list[str] = []
    chains: list[str] = []
    for line in saved:
        if line.startswith("*"):
            table, jumps, chains = line, [], []
        elif line.startswith(":") and NEUTRON_CHAIN.match(line[1:]):
            chains.append(line[1:].split()[0])
        elif line.startswith("-A ") and not NEUTRON_CHAIN.match(line[3:]):
            if re.search(rf"-[jg] {NEUTRON_CHAIN.pattern}", line):
                jumps.append("-D" + line[2:])
        elif line == "COMMIT" and chains:
            script += [table, *jumps]
            script += [f"-F {chain}" for chain in chains]
            script += [f"-X {chain}" for chain in chains]
            script.append("COMMIT")
    return script


def _ip(*words: str) -> list[dict[str, str]]:
    return json.loads(commands.run("ip", "-j", *words) or "[]")
