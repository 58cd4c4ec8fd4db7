# SPDX-License-Identifier: Apache-2.0
"""`openstack gpu host …`."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from osc_lib import exceptions
from osc_lib.cli.format_columns import ListColumn

from gsaasclient.osc.command import (
    Column,
    Command,
    Lister,
    ShowOne,
    add_list_options,
    argument,
    first,
    list_query,
    listed,
    shown,
)
from gsaasclient.osc.service import TOTALS_HINT, add_service_options, check_service_options
from gsaasclient.times import for_api

LOG = logging.getLogger(__name__)

LISTED = (
    Column("Name", lambda host: host.name),
    Column("GPU Address", lambda host: host.gpu_address),
    Column("GPUs", lambda host: host.gpus),
    Column("Memory MiB", lambda host: host.memory_mb),
    Column("Free MiB", lambda host: host.free_mb),
    Column("Compute", lambda host: host.is_compute),
    Column("Disabled", lambda host: host.is_disabled),
    Column("Silent", lambda host: host.is_silent),
)
LONG = (
    *LISTED,
    Column("Disabled Reason", lambda host: host.disabled_reason),
    Column("Monitor Interval", lambda host: host.monitor_interval),
    Column("Monitor Seen At", lambda host: host.monitor_seen_at),
    Column("Problems", lambda host: ListColumn(host.problems or [])),
    Column("Drain", lambda host: ListColumn(_waits(host))),
)
SHOWN = (
    Column("name", lambda host: host.name),
    Column("gpu_address", lambda host: host.gpu_address),
    Column("gpus", lambda host: host.gpus),
    Column("memory_mb", lambda host: host.memory_mb),
    Column("free_mb", lambda host: host.free_mb),
    Column("compute", lambda host: host.is_compute),
    Column("disabled", lambda host: host.is_disabled),
    Column("disabled_reason", lambda host: host.disabled_reason),
    Column("silent", lambda host: host.is_silent),
    Column("monitor_interval", lambda host: host.monitor_interval),
    Column("monitor_seen_at", lambda host: host.monitor_seen_at),
    Column("problems", lambda host: ListColumn(host.problems or [])),
    Column("drain_by", lambda host: (host.drain or {}).get("by")),
    Column("drain", lambda host: ListColumn(_waits(host))),
)
FORGOTTEN = (
    Column("name", lambda answer: answer["name"]),
    Column("failed_leases", lambda answer: ListColumn(answer["failed_leases"])),
    Column("unbound_leases", lambda answer: ListColumn(answer["unbound_leases"])),
)


class ListHosts(Lister):
    """List the GPU hosts and compute hosts (administrators)"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("--long", action="store_true", help="list further fields")
        add_list_options(parser, "name, disabled, monitor_seen_at")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        found = list(first(self.gpus.hosts(**list_query(parsed_args)), parsed_args.limit))
        if not found:
            LOG.warning(TOTALS_HINT)
        return listed(LONG if parsed_args.long else LISTED, found)


class ShowHost(ShowOne):
    """Show a host (administrators)"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_host(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        return shown(SHOWN, self.gpus.get_host(parsed_args.host))


class SetHost(Command):
    """Take all GPUs of a host out of service, drain it, or return it to service (administrators)"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_host(parser)
        add_service_options(parser)
        parser.add_argument(
            "--drain",
            action="store_true",
            help="with --disable: move its leases to other hosts, as soon as they have no open connections",
        )
        cut = parser.add_mutually_exclusive_group()
        cut.add_argument(
            "--by",
            metavar="<time>",
            type=argument(for_api),
            help="with --drain: when connections that are still open are cut",
        )
        cut.add_argument(
            "--force", action="store_true", help="with --drain: cut open connections at once"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        check_service_options(parsed_args)
        if parsed_args.drain and not parsed_args.disable:
            raise exceptions.CommandError("--drain is valid only with --disable")
        if (parsed_args.by or parsed_args.force) and not parsed_args.drain:
            raise exceptions.CommandError("--by and --force are valid only with --drain")
        if parsed_args.drain:
            self.gpus.drain_host(
                parsed_args.host, parsed_args.reason, by=parsed_args.by, force=parsed_args.force
            )
        elif parsed_args.disable:
            self.gpus.disable_host(parsed_args.host, parsed_args.reason)
        elif parsed_args.enable:
            self.gpus.enable_host(parsed_args.host)
        else:
            raise exceptions.CommandError("nothing to change: give --disable or --enable")


class DeleteHost(ShowOne):
    """Declare a host permanently gone (administrators); its leases lose their cGPUs"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_host(parser)
        parser.add_argument(
            "--force",
            action="store_true",
            help="although its agents have reported recently: it was switched off since then",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        return shown(FORGOTTEN, self.gpus.forget_host(parsed_args.host, parsed_args.force))


def _waits(host: Any) -> list[str]:
    """Return the leases that a drain has left on *host*, each with what it waits for."""
    left = (host.drain or {}).get("leases") or []
    return [f"{lease['id']}: {lease['waits'] or 'not looked at yet'}" for lease in left]


def _add_host(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("host", metavar="<host>", help="host (name)")
