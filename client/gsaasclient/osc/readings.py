# SPDX-License-Identifier: Apache-2.0
"""`openstack gpu lease reading list`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gsaasclient.osc.command import Column, Lister, listed
from gsaasclient.osc.leases import LeaseCommand, add_lease

MINUTE, TEN_MINUTES = 60, 600
"""Seconds of the intervals of the last hour, and of the last day."""


def _path(field: str) -> Column:
    heading = field.replace("_", " ").title().replace("Per Second", "/s")
    return Column(heading, lambda row: (row["path"] or {}).get(field))


COLUMNS = (
    Column("At", lambda row: row["at"]),
    Column("cGPU", lambda row: row["cgpu"].get("index")),
    Column("Utilisation %", lambda row: row["cgpu"].get("utilisation")),
    Column("Used MiB", lambda row: row["cgpu"].get("used_mb")),
    _path("sent_bytes_per_second"),
    _path("received_bytes_per_second"),
    _path("connections"),
    _path("dropped_packets"),
)


class ListReadings(Lister, LeaseCommand):
    """List what the cGPUs of a lease did, each in a row of its own"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_lease(parser)
        parser.add_argument(
            "--day",
            action="store_true",
            help="the last day, every ten minutes (default: the last hour, every minute)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        readings = self.gpus.get_lease_readings(self.find(parsed_args.lease).id)
        seconds = TEN_MINUTES if parsed_args.day else MINUTE
        series = next(each for each in readings["series"] if each["seconds"] == seconds)
        return listed(COLUMNS, _rows(series["points"]))


def _rows(points: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a row for each cGPU of each point; the path of a lease, which its cGPUs share, is in the first of them."""
    for point in points:
        for number, cgpu in enumerate(point["cgpus"] or [{}]):
            yield {"at": point["at"], "cgpu": cgpu, "path": None if number else point["path"]}
