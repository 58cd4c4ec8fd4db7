# SPDX-License-Identifier: Apache-2.0
"""`openstack gpu list|show|set`, `openstack gpu model list` and `openstack gpu totals show`."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions
from osc_lib.cli.format_columns import DictColumn, ListColumn

from gsaasclient.osc.command import (
    Column,
    Command,
    Lister,
    ShowOne,
    add_list_options,
    first,
    list_query,
    listed,
    shown,
)
from gsaasclient.osc.service import TOTALS_HINT, add_service_options, check_service_options
from gsaasclient.sdk import Proxy
from gsaasclient.sdk.gpus import Model

LOG = logging.getLogger(__name__)

LISTED = (
    Column("UUID", lambda gpu: gpu.uuid),
    Column("Host", lambda gpu: gpu.host),
    Column("Index", lambda gpu: gpu.index),
    Column("Kind", lambda gpu: gpu.kind),
    Column("Model", lambda gpu: gpu.model),
    Column("Memory MiB", lambda gpu: gpu.memory_mb),
    Column("Used MiB", lambda gpu: gpu.used_mb),
    Column("Mode", lambda gpu: gpu.mode),
    Column("Disabled", lambda gpu: gpu.is_disabled),
    Column("Withdrawn", lambda gpu: gpu.withdrawn),
)
LONG = (
    *LISTED,
    Column("Disabled Reason", lambda gpu: gpu.disabled_reason),
    Column("Compute Capability", lambda gpu: gpu.compute_capability),
    Column("Leases", lambda gpu: ListColumn(gpu.leases or [])),
    Column("Utilisation", lambda gpu: (gpu.reading or {}).get("utilisation")),
    Column("Temperature", lambda gpu: (gpu.reading or {}).get("temperature_c")),
)
SHOWN = (
    Column("uuid", lambda gpu: gpu.uuid),
    Column("host", lambda gpu: gpu.host),
    Column("index", lambda gpu: gpu.index),
    Column("kind", lambda gpu: gpu.kind),
    Column("model", lambda gpu: gpu.model),
    Column("compute_capability", lambda gpu: gpu.compute_capability),
    Column("memory_mb", lambda gpu: gpu.memory_mb),
    Column("used_mb", lambda gpu: gpu.used_mb),
    Column("reserved_mb", lambda gpu: gpu.reserved_mb),
    Column("mode", lambda gpu: gpu.mode),
    Column("leases", lambda gpu: ListColumn(gpu.leases or [])),
    Column("disabled", lambda gpu: gpu.is_disabled),
    Column("disabled_reason", lambda gpu: gpu.disabled_reason),
    Column("withdrawn", lambda gpu: gpu.withdrawn),
    Column("awaits_operator", lambda gpu: gpu.awaits_operator),
    Column("parent_uuid", lambda gpu: gpu.parent_uuid),
    Column("reported_by", lambda gpu: ListColumn(gpu.reported_by or [])),
    Column("daemon_address", lambda gpu: gpu.daemon_address),
    Column("reading", lambda gpu: DictColumn(gpu.reading or {})),
)
MODELS = (
    Column("Model", lambda model: model.model),
    Column("Kind", lambda model: model.kind),
    Column("Compute Capability", lambda model: model.compute_capability),
    Column("Memory MiB", lambda model: model.memory_mb),
    Column("GPUs", lambda model: model.gpus),
    Column("Idle", lambda model: model.idle),
    Column("Free MiB", lambda model: model.free_mb),
    Column("Largest Share MiB", lambda model: model.largest_share_mb),
)
TOTALS = (
    Column("hosts", lambda totals: totals.hosts),
    Column("gpus", lambda totals: totals.gpus),
    Column("idle", lambda totals: totals.idle),
    Column("memory_mb", lambda totals: totals.memory_mb),
    Column("free_mb", lambda totals: totals.free_mb),
)


class ListGpus(Lister):
    """List the GPUs; for who may not see each of them, their models and how much of each is free"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("--long", action="store_true", help="list further fields")
        add_list_options(parser, "host, model, used_mb")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        try:
            found = list(first(self.gpus.gpus(**list_query(parsed_args)), parsed_args.limit))
        except sdk_exceptions.ForbiddenException:
            found = []  # an order of GPUs is refused to who may not see them
        if not found:
            return listed(MODELS, _models(self.gpus))
        return listed(LONG if parsed_args.long else LISTED, found)


class ListModels(Lister):
    """List the models of GPUs, and how much of each is free"""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        return listed(MODELS, self.gpus.models())


class ShowGpu(ShowOne):
    """Show a GPU (administrators)"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_gpu(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        return shown(SHOWN, self.gpus.get_gpu(parsed_args.gpu))


class SetGpu(Command):
    """Take a GPU out of service, return it to service, or let it move to another host (administrators)"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_gpu(parser)
        add_service_options(parser)
        parser.add_argument(
            "--host",
            metavar="<host>",
            help="consent to its move to this host, which reports it",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        check_service_options(parsed_args)
        if not (parsed_args.disable or parsed_args.enable or parsed_args.host):
            raise exceptions.CommandError("nothing to change: give --disable, --enable or --host")
        if parsed_args.host:
            self.gpus.adopt_gpu(parsed_args.gpu, parsed_args.host)
        if parsed_args.disable:
            self.gpus.disable_gpu(parsed_args.gpu, parsed_args.reason)
        if parsed_args.enable:
            self.gpus.enable_gpu(parsed_args.gpu)


class ShowTotals(ShowOne):
    """Show how many GPUs the cloud has, and how much of their memory is free"""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        return shown(TOTALS, self.gpus.get_totals())


def _models(gpus: Proxy) -> list[Model]:
    """Return the models of GPUs; none of an API that is too old to list them, with a hint."""
    try:
        return list(gpus.models())
    except (sdk_exceptions.NotFoundException, sdk_exceptions.BadRequestException):
        LOG.warning(TOTALS_HINT)
        return []


def _add_gpu(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("gpu", metavar="<gpu>", help="GPU (UUID)")
