# SPDX-License-Identifier: Apache-2.0
"""What GPUs and hosts share: the options that take one of them out of service."""

from __future__ import annotations

import argparse

from osc_lib import exceptions

TOTALS_HINT = (
    "administrators alone see GPUs and hosts; openstack gpu totals show has how many there are"
)
"""Said when a list of them is empty."""


def add_service_options(parser: argparse.ArgumentParser) -> None:
    """Add `--disable`, `--enable` and `--reason`."""
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--disable",
        action="store_true",
        help="offer it to no more leases; those that have it keep it",
    )
    either.add_argument("--enable", action="store_true", help="offer it again")
    parser.add_argument(
        "--reason", metavar="<text>", help="why it is disabled, for other operators to read"
    )


def check_service_options(args: argparse.Namespace) -> None:
    """Raise `CommandError` for `--reason` without `--disable`."""
    if args.reason and not args.disable:
        raise exceptions.CommandError("--reason is valid only with --disable")
