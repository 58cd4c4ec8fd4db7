"""A scenario: a history and the ways to run it, as a TOML file.

title = "Our GPUs, tied to their hosts and cloudified"
history = "history.csv"             # beside this file; gsaas-sim import makes one

[site]
hosts = 16
gpus = 8                            # of each host
memory_mb = 81920                   # of each GPU

[[run]]
name = "tied"
locality = "local"

[[run]]
name = "anywhere"
policy = "best-fit"                 # any of gsaas policies; least-load-fit unless told otherwise
backfill = true

[[run]]
name = "fewer hosts"
hosts = 14                          # what is said here goes before [site]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gsaas.gpgpums import policies
from gsaas.objects.request import ANY, LOCAL
from gsaas.sim.cloud import Site

SITE = {"hosts": int, "gpus": int, "memory_mb": int, "model": str}
RUN = {"name": str, "policy": str, "locality": str, "backfill": bool}


class ScenarioError(Exception):
    """A scenario cannot be used; says what is wrong and what would be right."""


@dataclass(frozen=True)
class Run:
    """One way to run the history."""

    name: str
    site: Site
    policy: str = "least-load-fit"
    locality: str = ANY
    backfill: bool = False


@dataclass(frozen=True)
class Scenario:
    title: str
    history: Path
    runs: tuple[Run, ...]


def read(path: Path) -> Scenario:
    """Return the scenario in a file. Raises `ScenarioError`."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError(f"{path} is no TOML: {error}") from error
    try:
        return _scenario(path, document)
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from None


def _scenario(path: Path, document: Mapping[str, Any]) -> Scenario:
    _known(document, {"title": str, "history": str, "site": dict, "run": list}, "the scenario")
    if "history" not in document:
        raise ScenarioError('it needs history = "FILE", which gsaas-sim import makes')
    site = _site(document.get("site", {}))
    runs = tuple(_run(number, run, site) for number, run in enumerate(document.get("run", [{}]), 1))
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        raise ScenarioError("two runs have the same name")
    return Scenario(document.get("title", path.stem), path.parent / document["history"], runs)


def _site(table: Mapping[str, Any]) -> Site:
    _known(table, SITE, "[site]")
    if missing := [name for name in ("hosts", "gpus", "memory_mb") if name not in table]:
        raise ScenarioError(f"[site] needs {', '.join(missing)}")
    if wrong := [name for name in ("hosts", "gpus", "memory_mb") if table[name] < 1]:
        raise ScenarioError(f"[site] {wrong[0]} is at least 1")
    return Site(**table)


def _run(number: int, table: Mapping[str, Any], site: Site) -> Run:
    where = f"[[run]] {number}"
    _known(table, RUN | SITE, where)
    own_site = {name: table[name] for name in SITE if name in table}
    if any(isinstance(value, int) and value < 1 for value in own_site.values()):
        raise ScenarioError(f"{where}: hosts, gpus and memory_mb are at least 1")
    how = {name: table[name] for name in RUN if name in table}
    run = Run(**{"name": f"run {number}", **how, "site": replace(site, **own_site)})
    if run.policy not in policies.names():
        known = ", ".join(policies.names())
        raise ScenarioError(f"{where}: there is no policy {run.policy!r}; there are {known}")
    if run.locality not in (ANY, LOCAL):
        raise ScenarioError(f"{where}: locality is {ANY} or {LOCAL}, not {run.locality!r}")
    return run


def _known(table: Mapping[str, Any], keys: Mapping[str, type], where: str) -> None:
    for name, value in table.items():
        if name not in keys:
            raise ScenarioError(f"{where} has no {name!r}; it may have {', '.join(keys)}")
        if not isinstance(value, keys[name]) or (keys[name] is int and isinstance(value, bool)):
            raise ScenarioError(f"{where}: {name} is no {keys[name].__name__}: {value!r}")
