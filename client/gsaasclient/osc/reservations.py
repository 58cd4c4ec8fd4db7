# SPDX-License-Identifier: Apache-2.0
"""`openstack gpu reservation …`."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from openstack.exceptions import SDKException
from osc_lib import exceptions
from osc_lib.cli.format_columns import ListColumn

from gsaasclient.osc import cgpus
from gsaasclient.osc.command import (
    Column,
    Command,
    CreateOne,
    Lister,
    ShowOne,
    add_list_options,
    argument,
    first,
    list_query,
    listed,
    message_of,
    shown,
)
from gsaasclient.times import for_api

LOG = logging.getLogger(__name__)

LISTED = (
    Column("ID", lambda one: one.id),
    Column("Name", lambda one: one.name),
    Column("Status", lambda one: one.status),
    Column("cGPUs", lambda one: one.cgpus["count"]),
    Column("Mode", lambda one: one.cgpus["mode"]),
    Column("Memory MiB", lambda one: one.cgpus["memory_mb"]),
    Column("Start", lambda one: one.start),
    Column("End", lambda one: one.end),
    Column("Kept", lambda one: one.kept),
)
SHOWN = (
    Column("id", lambda one: one.id),
    Column("name", lambda one: one.name),
    Column("status", lambda one: one.status),
    Column("project_id", lambda one: one.project_id),
    Column("user_id", lambda one: one.user_id),
    Column("cgpus", lambda one: one.cgpus["count"]),
    Column("mode", lambda one: one.cgpus["mode"]),
    Column("memory_mb", lambda one: one.cgpus["memory_mb"]),
    Column("start", lambda one: one.start),
    Column("end", lambda one: one.end),
    Column("kept", lambda one: one.kept),
    Column("lease_ids", lambda one: ListColumn(one.lease_ids)),
    Column("degraded", lambda one: one.is_degraded),
    Column("degraded_reasons", lambda one: ListColumn(one.degraded_reasons or [])),
    Column("created_at", lambda one: one.created_at),
)


class CreateReservation(CreateOne):
    """Reserve cGPUs for a time to come; launch in it with openstack gpu lease create --reservation"""

    noun = "reservation"

    def give_back(self, made: str) -> None:
        self.gpus.delete_reservation(made)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="<name>", nargs="?", help="a name for the reservation")
        cgpus.add_options(parser, of_reservation=True)
        parser.add_argument(
            "--start",
            metavar="<time>",
            type=argument(for_api),
            help="when it begins, such as 2040-01-31T09:00:00Z, tomorrow 9:00 or +2h (default: now)",
        )
        parser.add_argument(
            "--end", metavar="<time>", type=argument(for_api), required=True, help="when it is over"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        given = {name: getattr(parsed_args, name) for name in ("name", "start", "end")}
        fields = {name: value for name, value in given.items() if value is not None}
        wanted = cgpus.from_options(parsed_args)
        reservation = self.gpus.create_reservation(cgpus=wanted, **fields)
        self.made = reservation.id
        return shown(SHOWN, reservation)


class ListReservations(Lister):
    """List the reservations of your project that are not over, the earliest first"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--status",
            metavar="<status>",
            type=str.upper,
            help="only reservations in this status; those that are over are listed with ENDED or CANCELLED only",
        )
        parser.add_argument(
            "--all-projects", action="store_true", help="those of all projects (administrators)"
        )
        add_list_options(parser, "name, status, start")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        found = self.gpus.reservations(
            status=parsed_args.status,
            all_projects=parsed_args.all_projects or None,
            **list_query(parsed_args),
        )
        return listed(LISTED, first(found, parsed_args.limit))


class ShowReservation(ShowOne):
    """Show a reservation"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("reservation", metavar="<reservation>", help="its name or ID")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        return shown(
            SHOWN, self.gpus.find_reservation(parsed_args.reservation, ignore_missing=False)
        )


class SetReservation(Command):
    """Change the name of a reservation"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("reservation", metavar="<reservation>", help="its name or ID")
        parser.add_argument("--name", metavar="<name>", required=True, help="its new name")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        found = self.gpus.find_reservation(parsed_args.reservation, ignore_missing=False)
        self.gpus.update_reservation(found.id, name=parsed_args.name)


class DeleteReservations(Command):
    """Cancel reservations; the leases that were launched in them go on"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "reservation",
            metavar="<reservation>",
            nargs="+",
            help="reservation (name or ID); several can be named",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        failed = 0
        for reservation in parsed_args.reservation:
            try:
                found = self.gpus.find_reservation(reservation, ignore_missing=False)
                self.gpus.delete_reservation(found, ignore_missing=False)
            except SDKException as error:  # the others are to be cancelled all the same
                failed += 1
                LOG.error("%s: %s", reservation, message_of(error))
        if failed:
            raise exceptions.CommandError(
                f"{failed} of {len(parsed_args.reservation)} reservations could not be cancelled"
            )
