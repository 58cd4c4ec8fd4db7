# SPDX-License-Identifier: Apache-2.0
"""What the commands have in common: errors in a sentence with hints, columns, and options of lists."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from keystoneauth1 import exceptions as keystone
from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions
from osc_lib.command import command

from gsaasclient import sdk
from gsaasclient.cli.error_details import explain, sentence
from gsaasclient.cli.standard_files import Writing

OPTIONS = {
    "count": "--cgpus",
    "kind": "--kind",
    "memory_mb": "--memory",
    "mode": "--mode",
    "locality": "--locality",
    "hosts": "--hosts",
    "gpu_model": "--gpu-model",
    "compute_capability": "--compute-capability",
    "host": "--host",
}
"""The options of a request for cGPUs, by field of the API."""
SERVER_OPTIONS = {"imageRef": "--image", "flavorRef": "--flavor", "networks": "--network"}
"""Those of a VM, by Nova's field."""

FIELDS = OPTIONS | {
    "policy": "--policy",
    "wait": "--queue",
    "priority": "--priority",
    "keepalive": "--keepalive",
    "reservation": "--reservation",
    "duration": "--for",
    "ends_at": "--until",
    "movable": "--movable",
    "start": "--start",
    "end": "--end",
    "status": "--status",
    "sort_key": "--sort",
    "changes-since": "--changes-since",
}
"""The options by field of a request, for messages about one that is not valid."""

Row = TypeVar("Row")


class Column(NamedTuple):
    """A column of a list, or a field of what is shown."""

    heading: str
    value: Callable[[Any], Any]
    """Returns its value for a resource."""


class Command(command.Command):
    """A command that reports the API's errors as `gsaas` does: one sentence, and lines with what would help."""

    @property
    def gpus(self) -> sdk.Proxy:
        """The client."""
        manager: Any = self.app.client_manager  # whose class does not know of the attribute
        proxy: sdk.Proxy = manager.gpu_scheduling
        return proxy

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command. Raises `CommandError` for an error of the API."""
        try:
            return super().run(parsed_args)
        except (sdk_exceptions.ServiceDisabledException, keystone.EndpointNotFound):
            manager = self.app.client_manager
            raise exceptions.CommandError(
                f"the cloud's catalogue has no {manager.interface or 'public'} endpoint of type {sdk.SERVICE_TYPE} in "
                f"region {manager.region_name or '(any)'}: GSaaS is not installed there, or --os-region-name or "
                "--os-interface is wrong"
            ) from None
        except sdk_exceptions.SDKException as error:
            raise exceptions.CommandError(message_of(error)) from error


class Lister(Command, command.Lister):
    """A command that prints a list."""


class ShowOne(Command, command.ShowOne):
    """A command that prints one resource."""


class CreateOne(ShowOne):
    """A command that makes one resource and prints it; it deletes what it cannot print, of which nobody would know."""

    noun: str
    made: str | None = None
    """The id of what it has made."""

    def give_back(self, made: str) -> None:
        """Delete what was made. Raises `SDKException`."""
        raise NotImplementedError

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Any
    ) -> int:
        """Print it. Raises `CommandError` if the output cannot be written."""
        try:
            with Writing():
                return super().produce_output(parsed_args, column_names, data)
        except BaseException as error:
            if self.made is None:
                raise
            outcome = f"{self.noun} {self.made} is given back"
            try:
                self.give_back(self.made)
            except sdk_exceptions.SDKException as problem:
                outcome = (
                    f"{self.noun} {self.made} could not be given back ({message_of(problem)}); to end it: openstack "
                    f"gpu {self.noun} delete {self.made}"
                )
            reason = str(error) or type(error).__name__
            if self.app.stdout is None:
                reason = "standard output is closed"
            elif isinstance(error, BrokenPipeError):
                reason = "the reader of the output has ended"
            raise exceptions.CommandError(f"{reason}; {outcome}") from error


def message_of(error: Exception) -> str:
    """Return what is to be printed of an error: the API's sentence and what would help, or the SDK's message."""
    if isinstance(error, sdk_exceptions.HttpException) and (said := sdk.api_error(error)):
        return "\n".join(
            [sentence(said, FIELDS), *explain(said, OPTIONS, SERVER_OPTIONS, FIELDS["wait"])]
        )
    return str(error)


def listed(columns: Sequence[Column], resources: Iterable[Any]) -> tuple[tuple[str, ...], Any]:
    """Return what a `Lister` prints."""
    headings = tuple(column.heading for column in columns)
    return headings, (tuple(column.value(each) for column in columns) for each in resources)


def shown(columns: Sequence[Column], resource: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Return what a `ShowOne` prints."""
    headings, rows = listed(columns, [resource])
    return headings, next(rows)


def add_list_options(parser: argparse.ArgumentParser, keys: str) -> None:
    """Add the options of every list that can be long; *keys* says by what it can be sorted."""
    parser.add_argument(
        "--sort",
        metavar="<key>[:<direction>]",
        type=sort_keys,
        default=([], []),
        help=f"sort by {keys}, or another field of the API; asc (default) or desc; of several keys, separated by "
        "commas, each orders what is equal in those before it",
    )
    parser.add_argument("--limit", metavar="<number>", type=positive, help="list at most this many")
    parser.add_argument(
        "--marker", metavar="<id>", help="list what comes after the one with this id"
    )


def list_query(args: argparse.Namespace) -> dict[str, Any]:
    """Return the query for the options of `add_list_options`."""
    keys, directions = args.sort
    query = {"sort_key": keys, "sort_dir": directions, "limit": args.limit, "marker": args.marker}
    return {name: value for name, value in query.items() if value}


def first(resources: Iterator[Row], limit: int | None) -> Iterator[Row]:
    """Return the first *limit* of *resources*, all with None. No page is read that is not needed."""
    return itertools.islice(resources, limit)


def sort_keys(value: str) -> tuple[list[str], list[str]]:
    """Convert the argument of `--sort` to keys and directions. Raises `argparse.ArgumentTypeError`."""
    keys, directions = [], []
    for part in value.split(","):
        key, _, direction = part.partition(":")
        if not key or direction not in ("", "asc", "desc"):
            raise argparse.ArgumentTypeError(f"{part!r} is not a key, or a key with :asc or :desc")
        keys.append(key)
        directions.append(direction or "asc")
    return keys, directions


def argument(convert: Callable[[str], Row]) -> Callable[[str], Row]:
    """Return *convert* as the `type` of an argument: argparse prints what an `ArgumentTypeError` says."""

    def converted(value: str) -> Row:
        try:
            return convert(value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return converted


def positive(value: str) -> int:
    """Convert to a whole number above 0. Raises `argparse.ArgumentTypeError`."""
    if not value.isdecimal() or not int(value):
        raise argparse.ArgumentTypeError(f"{value!r} is not a whole number above 0")
    return int(value)
