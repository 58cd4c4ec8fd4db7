# SPDX-License-Identifier: Apache-2.0
"""A scenario: a history and the runs to make of it, as a TOML file.

title = "Our GPUs, tied to their hosts and cloudified"
history = "history.csv"             # beside this file; gsaas-sim import makes one

[site]
hosts = 16
gpus = 8                            # of each host
memory_mb = 81920                   # of each GPU
model = "H200"                      # with capability = "9.0", if requests of the history require them

[[site.beside]]                     # hosts of another kind, if there are any
hosts = 4
gpus = 4
memory_mb = 24576
model = "L4"

[[run]]
name = "tied"
locality = "local"

[[run]]
name = "anywhere"
policy = "best-fit"                 # one that `gsaas policies` lists; the default is least-load-fit
backfill = true

[[run]]
name = "fewer hosts"
hosts = 14                          # overrides [site] for this run
policy = "local-gradient"
options = { remote_price = 20 }     # of the policy, as [gpgpums] has them in the service
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gsaas.exceptions import UnknownPolicy
from gsaas.objects.request import ANY, LOCAL
from gsaas.sim import policies, policy_options
from gsaas.sim.cloud import Site

MOST_GPUS = 1_000_000
MOST_MB = 1_000_000_000

SITE_KEYS: Mapping[str, type] = {
    "hosts": int,
    "gpus": int,
    "memory_mb": int,
    "model": str,
    "capability": str,
}
RUN_KEYS: Mapping[str, type] = {
    "name": str,
    "policy": str,
    "locality": str,
    "backfill": bool,
    "options": dict,
}
"""The keys of the tables [site] and [[run]], with the type of their values."""


class ScenarioError(Exception):
    """A scenario is invalid. The message says what is wrong and what is allowed."""


@dataclass(frozen=True)
class Run:
    """One run of the history: its name in the report, and how it is run."""

    name: str
    site: Site
    policy: str = "least-load-fit"
    locality: str = ANY
    backfill: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the policy, by their names in the group gpgpums of the service's configuration."""


@dataclass(frozen=True)
class Scenario:
    """A history file, and the runs to make of it."""

    title: str
    history: Path
    runs: tuple[Run, ...]


def read(path: Path) -> Scenario:
    """Return the scenario in a TOML file. Raises `ScenarioError` if it cannot be read or is invalid."""
    try:
        document = tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError(f"{path} is not valid TOML: {error}") from error
    try:
        return _scenario(path, document)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _scenario(path: Path, document: Mapping[str, Any]) -> Scenario:
    _check_keys(document, {"title": str, "history": str, "site": dict, "run": list}, "the scenario")
    if "history" not in document:
        raise ScenarioError('it needs history = "FILE", which gsaas-sim import makes')
    site = _site(document.get("site", {}))
    runs = tuple(_run(number, run, site) for number, run in enumerate(document.get("run", [{}]), 1))
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        raise ScenarioError("two runs have the same name")
    return Scenario(document.get("title", path.stem), path.parent / document["history"], runs)


def _site(table: Mapping[str, Any]) -> Site:
    _check_keys(table, {**SITE_KEYS, "beside": list}, "[site]")
    beside = tuple(
        _hosts(part, f"[[site.beside]] {number}")
        for number, part in enumerate(table.get("beside", ()), 1)
    )
    hosts = {name: value for name, value in table.items() if name != "beside"}
    return replace(_hosts(hosts, "[site]"), beside=beside)


def _hosts(table: Mapping[str, Any], where: str) -> Site:
    _check_keys(table, SITE_KEYS, where)
    if missing := [name for name in ("hosts", "gpus", "memory_mb") if name not in table]:
        raise ScenarioError(f"{where} needs {', '.join(missing)}")
    if wrong := [name for name in ("hosts", "gpus", "memory_mb") if table[name] < 1]:
        raise ScenarioError(f"{where} {wrong[0]} is at least 1")
    if table["hosts"] * table["gpus"] > MOST_GPUS or table["memory_mb"] > MOST_MB:
        raise ScenarioError(
            f"{where} has more than {MOST_GPUS:,} GPUs, or more than {MOST_MB:,} MiB"
        )
    return Site(**table)


def _run(number: int, table: Mapping[str, Any], site: Site) -> Run:
    where = f"[[run]] {number}"
    _check_keys(table, {**RUN_KEYS, **SITE_KEYS}, where)
    own_site = {name: table[name] for name in SITE_KEYS if name in table}
    if any(isinstance(value, int) and value < 1 for value in own_site.values()):
        raise ScenarioError(f"{where}: hosts, gpus and memory_mb are at least 1")
    options = {name: table[name] for name in RUN_KEYS if name in table}
    run = Run(**{"name": f"run {number}", **options, "site": replace(site, **own_site)})
    try:
        policy_options.load(run.policy, run.options)
    except (UnknownPolicy, ValueError, policies.NotSimulated) as error:
        raise ScenarioError(f"{where}: {error}") from None
    if run.locality not in (ANY, LOCAL):
        raise ScenarioError(f"{where}: locality is {ANY} or {LOCAL}, not {run.locality!r}")
    return run


def _check_keys(table: Mapping[str, Any], keys: Mapping[str, type], where: str) -> None:
    """Raise `ScenarioError` if *table* has other keys than *keys*, or values of other types."""
    for name, value in table.items():
        if name not in keys:
            raise ScenarioError(f"{where} has no {name!r}; it may have {', '.join(keys)}")
        # In Python a bool is an int as well; `hosts = true` is a mistake all the same.
        if not isinstance(value, keys[name]) or (keys[name] is int and isinstance(value, bool)):
            raise ScenarioError(f"{where}: {name} is not of type {keys[name].__name__}: {value!r}")
