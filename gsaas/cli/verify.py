# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage verify`: prints how database, cloud and agents differ, and repairs it if it is told to."""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

if TYPE_CHECKING:
    from gsaas.cloud.base import Cloud
    from gsaas.db.database import Database
    from gsaas.engine.agents import Agents
    from gsaas.verify.facts import NotAsked
    from gsaas.verify.rules import Difference

VERIFY = "compare database, Nova, endpoints and monitors, and repair what differs"
VERIFY_MORE = """\
Compare what the database says of leases with what Nova, the endpoints and the monitors say, which are asked now; print
every difference, and what repairs it. Changes nothing without --repair. What is in flight is no difference: a lease
that an engine moves on, what was changed in the last --settle seconds, and what is different at one of two looks only,
which are as far apart. Servers are never deleted. The services may run meanwhile. Exit status: 0 if there is no
difference, or --repair has repaired all of them; 1 if there are some; 2 if somebody did not answer, or the command
could not find out. What those say who did answer is compared, and repaired, all the same.
"""
EXIT_OK, EXIT_DIFFERENCES, EXIT_NOT_ASKED = 0, 1, 2
"""Exit statuses, as `VERIFY_MORE` explains them."""
LONGEST_SETTLE = 600
BUS = "the message bus, and so every agent"


def add_parser(
    nouns: argparse._SubParsersAction[argparse.ArgumentParser],
    number: Callable[[str], int],
    run: Callable[..., int],
) -> None:
    """Add the command, whose --settle is read by *number*; *run* is called with the settings and the options."""
    command = nouns.add_parser("verify", help=VERIFY, description=VERIFY_MORE)
    command.add_argument("--repair", action="store_true", help="repair what can be repaired")
    command.add_argument(
        "--settle",
        metavar="SECONDS",
        type=number,
        default=10,
        help="for how long something has to be different (default: 10)",
    )
    command.add_argument(
        "--record",
        action="store_true",
        help="store how many differences there are, for the metrics of gsaas-api",
    )
    command.add_argument(
        "-f",
        "--format",
        choices=("table", "json"),
        default="table",
        help="lines for people (default), or a JSON object of {differences, not_asked}",
    )
    command.set_defaults(run=run)


def verify(
    settings: cfg.ConfigOpts,
    database: Database,
    cloud: Cloud,
    *,
    repair: bool,
    settle: int,
    record: bool,
    format: str,
) -> int:
    """Print the differences as *format*, `table` or `json`, and repair them with *repair*. Returns the exit status.

    Raises `ValueError` if the configuration cannot be used, and what the database raises.
    """
    from gsaas.context import RequestContext
    from gsaas.rpc.engine import EngineClient
    from gsaas.verify import gather, rules
    from gsaas.verify import record as recording
    from gsaas.verify.facts import NotAsked
    from gsaas.verify.repair import Repairs

    logging.disable()  # what is logged about a failure is printed
    with ExitStack() as parts:
        agents, bus, failure = _connect(settings, parts)

        def look() -> list[Difference]:
            facts = gather.gather(database, cloud, agents)
            for each in facts.not_asked:
                silent.setdefault(each.who, each)  # at the second look they may say it otherwise
            return rules.differences(facts, settle)

        silent: dict[str, NotAsked] = {}
        if failure is not None:
            silent[BUS] = NotAsked(BUS, failure)
        found = look()
        if found and settle:
            time.sleep(settle)
            found = rules.lasting(found, look())
        outcomes: dict[Difference, str | None] = {}
        if repair and agents is not None and bus is not None:
            engine, context = EngineClient(bus), RequestContext(overwrite=False)
            repairs = Repairs(
                database, cloud, agents, lambda lease_id: engine.lease_changed(context, lease_id)
            )
            outcomes = dict(repairs.carry_out(found))
    left = [one for one in found if outcomes.get(one, "not repaired") is not None]
    if record:
        recording.record(database, left, len(silent))
    _print(found, outcomes if repair else None, list(silent.values()), format)
    if silent:
        return EXIT_NOT_ASKED
    return EXIT_DIFFERENCES if left else EXIT_OK


def _connect(settings: cfg.ConfigOpts, parts: ExitStack) -> tuple[Agents | None, Any, str | None]:
    """Return the agents and the bus; or why the bus cannot be used."""
    from gsaas import rpc
    from gsaas.engine.agents import Agents
    from gsaas.objects.gpu_network import GpuNetwork
    from gsaas.rpc.monitor import MonitorClient
    from gsaas.rpc.rodvr import EndpointClient

    network = GpuNetwork.of(settings.gpu_network.prefixes, settings.gpu_network.hosts)
    try:
        bus = rpc.connect(settings)
        parts.callback(bus.cleanup)
        rpc.check(bus)
        rpc.prepare_calls(bus)
    except rpc.BusError as error:
        return None, None, " ".join(str(error).split())
    endpoint = EndpointClient(bus, settings.engine.endpoint_timeout)
    return Agents(endpoint, MonitorClient(bus), network), bus, None


def _print(
    found: list[Difference],
    outcomes: dict[Difference, str | None] | None,
    silent: list[NotAsked],
    format: str,
) -> None:
    """Print everything; *outcomes* are of repairs, None if nothing was to be repaired."""
    if format == "json":
        print(json.dumps(_as_json(found, outcomes, silent), indent=2))
        return
    for one in found:
        print(f"{one.kind:<21} {one.subject}: {one.said}")
        print(f"{'':<21} -> {one.todo}")
        if outcomes is not None and one.step is not None:
            failure = outcomes.get(one, "the message bus cannot be used")
            print(f"{'':<21}    {'done' if failure is None else f'failed: {failure}'}")
    for each in silent:
        print(f"{'not asked':<21} {each.who}: {each.why}")
    if not found:
        print("no difference" + (" in what was told" if silent else ""))


def _as_json(
    found: list[Difference], outcomes: dict[Difference, str | None] | None, silent: list[NotAsked]
) -> dict[str, Any]:
    return {
        "differences": [
            {
                "kind": one.kind,
                "subject": one.subject,
                "said": one.said,
                "todo": one.todo,
                "repaired": outcomes is not None and outcomes.get(one, "") is None,
                "failure": (outcomes or {}).get(one) if one.step is not None else None,
            }
            for one in found
        ],
        "not_asked": [{"who": each.who, "why": each.why} for each in silent],
    }
