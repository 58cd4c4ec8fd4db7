# SPDX-License-Identifier: Apache-2.0
"""`openstack gpu usage …` and `openstack gpu limits show`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from osc_lib.cli.format_columns import DictColumn

from gsaasclient.osc.command import Column, Lister, ShowOne, argument, listed, shown
from gsaasclient.times import for_api

LISTED = (
    Column("Project ID", lambda used: used["project_id"]),
    Column("Leases", lambda used: used["leases"]),
    Column("GPU Hours", lambda used: used["gpu_hours"]),
    Column("Memory MiB Hours", lambda used: used["memory_mb_hours"]),
)
COSTS = (
    Column("Cost", lambda used: used["cost"]),
    Column("Unpriced GPU Hours", lambda used: used["unpriced_gpu_hours"]),
)
"""Columns that are there if the operator has prices."""
LIMITS = (
    Column("cgpus", lambda limits: DictColumn(limits.cgpus)),
    Column("gpu_memory_mb", lambda limits: DictColumn(limits.gpu_memory_mb)),
    Column("leases", lambda limits: DictColumn(limits.leases)),
)


class ListUsage(Lister):
    """List what each project used in a period; only administrators see other projects than their own"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_period(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        used = self.gpus.get_usage(parsed_args.start, parsed_args.end).projects
        has_costs = any("cost" in each for each in used)
        return listed((*LISTED, *COSTS) if has_costs else LISTED, used)


class ShowUsage(ShowOne):
    """Show what a project used in a period"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_period(parser)
        parser.add_argument(
            "--project",
            metavar="<project-id>",
            help="project (ID; default: yours); only administrators may name another one",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        session = self.app.client_manager.session
        wanted = parsed_args.project or session.get_project_id()
        usage = self.gpus.get_usage(parsed_args.start, parsed_args.end)
        nothing = {"leases": 0, "gpu_hours": 0.0, "memory_mb_hours": 0.0}
        used = next((each for each in usage.projects if each["project_id"] == wanted), nothing)
        names, values = [*nothing], [used[name] for name in nothing]
        if "cost" in used:
            names += ["cost", "currency", "unpriced_gpu_hours"]
            values += [used["cost"], usage.currency, used["unpriced_gpu_hours"]]
        return ("project_id", "start", "end", *names), (wanted, usage.start, usage.end, *values)


class ShowLimits(ShowOne):
    """Show the limits of your project, and how much of each is used; -1 means no limit"""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        return shown(LIMITS, self.gpus.get_limits())


def _add_period(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--start",
        metavar="<time>",
        type=argument(for_api),
        help="start of the period: a date, or a time such as yesterday 9:00 or 2026-11-01T12:00:00Z (default: that of "
        "the month)",
    )
    parser.add_argument(
        "--end", metavar="<time>", type=argument(for_api), help="end of the period (default: now)"
    )
