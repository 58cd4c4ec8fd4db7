# SPDX-License-Identifier: Apache-2.0
"""`openstack gpu check create`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from osc_lib.cli.format_columns import ListDictColumn

from gsaasclient.cli.cgpus import to_options
from gsaasclient.osc import cgpus
from gsaasclient.osc.command import OPTIONS, Column, ShowOne, shown

SHOWN = (
    Column("fits", lambda check: check.fits),
    Column("code", lambda check: check.code),
    Column("reason", lambda check: check.reason),
    Column("filters", lambda check: ListDictColumn(check.filters)),
    Column("nearest", lambda check: to_options(check.nearest, OPTIONS) if check.nearest else None),
    Column("relaxed", lambda check: OPTIONS.get(check.relaxed, check.relaxed)),
    Column("devices", lambda check: ListDictColumn(check.devices)),
)


class CreateCheck(ShowOne):
    """Check whether a request for cGPUs would fit now, without claiming anything"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        cgpus.add_options(parser)
        parser.add_argument(
            "--consumer-host",
            metavar="<host>",
            help="without a VM: the host whose programs would use the cGPUs",
        )
        parser.add_argument(
            "--reservation",
            metavar="<reservation>",
            help="in this reservation of your project (name or ID)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        request = cgpus.from_options(parsed_args)
        if parsed_args.consumer_host:
            request["consumer"] = {"host": parsed_args.consumer_host}
        if parsed_args.reservation:
            reservation = self.gpus.find_reservation(parsed_args.reservation, ignore_missing=False)
            request["reservation"] = reservation.id
        return shown(SHOWN, self.gpus.create_check(**request))
