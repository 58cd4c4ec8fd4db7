# SPDX-License-Identifier: Apache-2.0
"""`openstack gpu queue list`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from gsaasclient.osc.command import (
    Column,
    Lister,
    add_list_options,
    first,
    list_query,
    listed,
)

LISTED = (
    Column("Position", lambda place: place.position),
    Column("Lease ID", lambda place: place.lease_id),
    Column("Name", lambda place: place.name),
    Column("Priority", lambda place: place.priority),
    Column("cGPUs", lambda place: place.cgpus["count"]),
    Column("Mode", lambda place: place.cgpus["mode"]),
    Column("Memory MiB", lambda place: place.cgpus["memory_mb"]),
    Column("Queued At", lambda place: place.queued_at),
    Column("Estimate Seconds", lambda place: place.estimate_seconds),
)
LONG = (
    *LISTED,
    Column("Wait Until", lambda place: place.wait_until),
    Column("Attended", lambda place: place.is_attended),
    Column("Project ID", lambda place: place.project_id),
    Column("User ID", lambda place: place.user_id),
)


class ListQueue(Lister):
    """List the requests of your project that wait for cGPUs; for administrators those of all projects"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("--long", action="store_true", help="list further fields")
        add_list_options(parser, "name, priority, queued_at (by default, the order of turns)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        found = first(self.gpus.queue(**list_query(parsed_args)), parsed_args.limit)
        return listed(LONG if parsed_args.long else LISTED, found)
