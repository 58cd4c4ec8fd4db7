# SPDX-License-Identifier: Apache-2.0
"""Releases of libraries: those that a file of constraints names, and those that the distributions admit."""

from __future__ import annotations

import configparser
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = (REPOSITORY, REPOSITORY / "client", REPOSITORY / "launcher")
"""The distributions that are installed beside OpenStack's services."""
UPPER_CONSTRAINTS = REPOSITORY / "tests" / "constraints"
"""Copies of OpenStack's constraints, one for each release that GSaaS is to run under."""


def read(path: Path) -> dict[str, str]:
    """Return name -> version of what *path* constrains for this Python."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    constraints = [Requirement(line) for line in lines if line]
    return {
        canonicalize_name(constraint.name): next(iter(constraint.specifier)).version
        for constraint in constraints
        if constraint.marker is None or constraint.marker.evaluate()
    }


def required() -> list[Requirement]:
    """Return what the distributions require, with all of their extras."""
    found: list[Requirement] = []
    for folder in FOLDERS:
        parser = configparser.RawConfigParser(delimiters=("=",))
        parser.read(folder / "setup.cfg")
        values = [parser.get("options", "install_requires", fallback="")]
        if parser.has_section("options.extras_require"):
            values += parser["options.extras_require"].values()
        lines = chain(*(value.splitlines() for value in values))
        found += [Requirement(line) for line in lines if line and not line.startswith("#")]
    return found


def contradictions(required: Iterable[Requirement], versions: Mapping[str, str]) -> list[str]:
    """Return what is required in another release than *versions* has, as sentences."""
    return [
        f"{requirement} is required, and {version} is constrained"
        for requirement in required
        if (version := versions.get(canonicalize_name(requirement.name))) is not None
        and not requirement.specifier.contains(version, prereleases=True)
    ]
