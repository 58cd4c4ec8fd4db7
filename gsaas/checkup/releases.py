# SPDX-License-Identifier: Apache-2.0
"""Check that the processes of an installation have releases that work together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from packaging.version import InvalidVersion, Version
from sqlalchemy import select
from sqlalchemy.orm import Session

from gsaas import version
from gsaas.checkup.agents import names
from gsaas.checkup.findings import Finding, fail, ok, warn
from gsaas.db import processes
from gsaas.db.models import EndpointRow, HostRow

CONTROLLERS = "releases of controllers"
AGENTS = "releases of agents"
MIDDLEWARE = "middleware"

Releases = Mapping[str, str | None]
"""Process, such as `gsaas-rodvr on compute1` -> its release; None if it has told none."""


def check_controllers(session: Session) -> Finding:
    """Check that every API and engine that runs has this release."""
    running = {
        f"{process.program} on {process.host}": process.release
        for process in processes.running(session)
    }
    return compare_controllers(running)


def check_agents(session: Session) -> Iterator[Finding]:
    """Check the releases that agents named in their last reports."""
    told: dict[str, str | None] = {}
    for endpoint in session.scalars(select(EndpointRow)):
        told[f"gsaas-rodvr on {endpoint.host_name}"] = endpoint.report.get("release")
    monitors = select(HostRow.name, HostRow.monitor_report).where(HostRow.forgotten.is_(False))
    for name, report in session.execute(monitors):
        if report:
            told[f"gsaas-monitor on {name}"] = report.get("release")
    yield from compare_agents(told)


def check_middleware(session: Session, wanted: str | None) -> Iterator[Finding]:
    """Check the versions that the daemons of GPU hosts reported; *wanted* is that of the clients, None if unknown."""
    monitors = select(HostRow.name, HostRow.monitor_report).where(
        HostRow.forgotten.is_(False), HostRow.disabled.is_(False)
    )
    told = {name: (report or {}).get("middleware") for name, report in session.execute(monitors)}
    yield from compare_middleware({name: it for name, it in told.items() if it}, wanted)


def compare_controllers(running: Mapping[str, str]) -> Finding:
    """Name the controllers' processes that have another release than this one."""
    others = sorted(
        f"{process} ({release})"
        for process, release in running.items()
        if release != version.RELEASE
    )
    if others:
        return warn(
            CONTROLLERS,
            f"this is release {version.RELEASE}, but others run: {names(others)}",
            "update all controllers, and restart their gsaas-api and gsaas-engine",
        )
    if not running:
        return ok(CONTROLLERS, "no gsaas-api or gsaas-engine has run in the last minutes")
    return ok(CONTROLLERS, f"all {len(running)} run {version.RELEASE}")


def compare_agents(told: Releases) -> Iterator[Finding]:
    """Name the agents that this release does not work with: too old, too new, or of an unknown release."""
    parsed = {agent: _parse(release) for agent, release in told.items()}
    oldest, own = Version(version.OLDEST_AGENT), Version(version.RELEASE)
    old = _named(parsed, lambda release: release < oldest)
    new = _named(parsed, lambda release: release > own)
    untold = sorted(agent for agent, release in parsed.items() if release is None)
    if old:
        yield fail(
            AGENTS,
            f"older than {version.OLDEST_AGENT}, which this release needs at least: {names(old)}",
            "update them before the controllers, or stop them until they are updated",
        )
    if new:
        yield warn(
            AGENTS,
            f"newer than this release {version.RELEASE}: {names(new)}",
            "update the controllers",
        )
    if untold:
        yield warn(
            AGENTS,
            f"these have not reported a release: they are older than the first that reports one: {names(untold)}",
            "update them after the controllers",
        )
    if not (old or new or untold):
        yield ok(AGENTS, f"all {len(told)} have {version.OLDEST_AGENT} to {version.RELEASE}")


def compare_middleware(told: Mapping[str, str], wanted: str | None) -> Iterator[Finding]:
    """Compare the versions of daemons, by GPU host, with that of the clients, or with each other."""
    if not told:
        return
    differing = sorted(f"{host} ({it})" for host, it in told.items() if it != wanted)
    if wanted is not None and differing:
        yield warn(
            MIDDLEWARE,
            f"clients have version {wanted}, and programs may hang on these hosts: {names(differing)}",
            "install the same version in your images and on all GPU hosts, and set [remoting]client_version",
        )
    elif len(set(told.values())) > 1:
        yield warn(
            MIDDLEWARE,
            f"GPU hosts have different versions, one of which clients cannot use: {names(differing)}",
            "install the version of your images on all GPU hosts",
        )
    else:
        yield ok(
            MIDDLEWARE,
            f"the daemons of all {len(told)} hosts that reported it have {min(told.values())}",
        )


def _named(parsed: Mapping[str, Version | None], chosen: Callable[[Version], bool]) -> list[str]:
    return sorted(
        f"{agent} ({release})"
        for agent, release in parsed.items()
        if release is not None and chosen(release)
    )


def _parse(release: str | None) -> Version | None:
    try:
        return None if release is None else Version(release)
    except InvalidVersion:
        return None
