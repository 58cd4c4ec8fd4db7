# SPDX-License-Identifier: Apache-2.0
"""`openstack gpu lease …`."""

from __future__ import annotations

import argparse
import logging
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from keystoneauth1 import exceptions as keystone
from openstack.exceptions import HttpException, SDKException
from osc_lib import exceptions
from osc_lib.cli.format_columns import DictColumn, ListColumn, ListDictColumn

from gsaasclient import lease_fields, vms
from gsaasclient.cli.standard_files import say
from gsaasclient.cli.tables import printable
from gsaasclient.lease_fields import Field
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
from gsaasclient.quantities import seconds
from gsaasclient.sdk.leases import Lease
from gsaasclient.times import for_api

LOG = logging.getLogger(__name__)

UNLIMITED = "unlimited"
"""The argument of `--queue` for a wait without a limit."""


def _list(value: list[Any] | None) -> Any:
    values = value or []
    return (
        ListDictColumn(values) if isinstance(next(iter(values), {}), dict) else ListColumn(values)
    )


_FORMATS: dict[type | None, Callable[[Any], Any]] = {
    dict: lambda value: DictColumn(value or {}),
    list: _list,
}
"""How a value that is not a text or a number is printed."""


def _shown(field: Field) -> Column:
    """Return *field* as `show` prints it."""
    formatted = _FORMATS.get(field.kind, lambda value: value)
    return Column(field.name, lambda lease: formatted(field.value_of(lease)))


def _listed(names: Sequence[str]) -> list[Column]:
    return [Column(field.title, field.value_of) for field in lease_fields.named(names)]


LISTED = _listed(lease_fields.OPENSTACK_LIST)
LONG = _listed(lease_fields.OPENSTACK_LONG)
ENDED = _listed(lease_fields.OPENSTACK_ENDED)
SHOWN = [_shown(field) for field in lease_fields.named(lease_fields.OPENSTACK_SHOW)]
MADE = [column for column in SHOWN if column.heading != "timings"]
"""What a launch answers: how long its phases took is of interest later."""
EVENTS = (
    Column("At", lambda event: event["at"]),
    Column("Event", lambda event: event["event"]),
    Column("Status", lambda event: event["status"]),
    Column("Detail", lambda event: event["detail"]),
)

MOVE = (
    Column("lease_id", lambda move: move["lease_id"]),
    Column("kind", lambda move: move["kind"]),
    Column("connections", lambda move: move["connections"]),
    Column("stage", lambda move: move["stage"]),
    Column("cgpus", lambda move: ListDictColumn(move["cgpus"])),
)


class LeaseCommand(Command):
    """A command that finds leases by what a user calls them."""

    def find(self, name_or_id: str, released: bool = False) -> Lease:
        """Return the lease with this id, server id or name, or the beginning of an id.

        With *released*, the newest RELEASED one with this name, if there is no other. Raises `NotFoundException` and
        `DuplicateResource`.
        """
        if released and self.gpus.find_lease(name_or_id) is None:
            newest = {"sort_key": "created_at", "sort_dir": "desc", "limit": 1}
            for lease in self.gpus.leases(name=name_or_id, status="RELEASED", **newest):
                return lease
        return self.gpus.find_lease(name_or_id, ignore_missing=False)

    def name_or_id(self, lease: Lease) -> str:
        """Return what commands may call a lease: its name if no other lease of the project has it, else its id."""
        called: str = lease.id
        namesakes = [each.id for each in self.gpus.leases(name=lease.name)]
        if namesakes == [lease.id] and not lease.name.startswith("-"):
            called = quote(lease.name)
        return called

    def wait_for(self, lease: Lease) -> Lease:
        """Wait until a lease is ACTIVE. Raises `CommandError` after an interrupt or an error: the lease stays."""
        called = self.name_or_id(lease)
        goes_on = (
            f"the launch goes on: openstack gpu lease show {called} shows its status, "
            f"openstack gpu lease delete {called} ends it"
        )
        try:
            return self.gpus.wait_for_lease(lease)
        except KeyboardInterrupt:
            raise exceptions.CommandError(f"interrupted, but {goes_on}") from None
        except HttpException as error:
            raise exceptions.CommandError(f"{message_of(error)}\n{goes_on}") from error


class CreateLease(CreateOne, LeaseCommand):
    """Launch a VM with cGPUs, or claim cGPUs for a program that runs already"""

    noun = "lease"

    def give_back(self, made: str) -> None:
        self.gpus.delete_lease(made)

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="<name>", nargs="?", help="a name for the lease")
        cgpus.add_options(parser)
        parser.add_argument(
            "--image", metavar="<image>", help="image of the VM (name or ID; default: the cloud's)"
        )
        parser.add_argument(
            "--flavor",
            metavar="<flavor>",
            help="flavor of the VM (name or ID; default: the cloud's)",
        )
        parser.add_argument(
            "--network",
            metavar="<network>",
            action="append",
            default=[],
            help="network of the VM (name or ID); repeat it for several (default: the cloud's)",
        )
        parser.add_argument("--key-name", metavar="<key>", help="key pair to log in to the VM with")
        parser.add_argument(
            "--user-data",
            metavar="<file>",
            help="cloud-init user data for the VM; GSaaS adds a part of its own",
        )
        parser.add_argument(
            "--no-server",
            action="store_true",
            help="no VM: an existing program or VM uses the cGPUs",
        )
        parser.add_argument(
            "--consumer-host",
            metavar="<host>",
            help="with --no-server: the host whose programs use them, by its name in GSaaS",
        )
        parser.add_argument(
            "--consumer-uid",
            metavar="<uid>",
            type=int,
            help="with --no-server: the user of that host who alone may use masked addresses",
        )
        parser.add_argument(
            "--consumer-address",
            metavar="<address>",
            help="with --no-server: the only IPv4 address that may redeem the grant",
        )
        parser.add_argument(
            "--keepalive",
            metavar="<duration>",
            type=argument(seconds),
            help="with --no-server: end the lease when nobody has kept it alive for so long: 90 (seconds), 10m",
        )
        parser.add_argument(
            "--queue",
            metavar="<duration>",
            type=_queue_seconds,
            default=0,
            help="if the request does not fit now, wait in the queue for at most this time, such as 10m, 2h, or 90 for "
            f"seconds, or without a limit: {UNLIMITED}",
        )
        parser.add_argument(
            "--priority",
            metavar="<number>",
            type=int,
            help="priority in the queue (default: 0); only administrators may set one above 0",
        )
        parser.add_argument(
            "--reservation",
            metavar="<reservation>",
            help="launch in this reservation of your project (name or ID)",
        )
        add_end(parser)
        add_movable(parser)
        parser.add_argument(
            "--wait", action="store_true", help="return when the lease can be used, or has failed"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        lease = self.gpus.create_lease(**self._request(parsed_args))
        self.made = lease.id
        for note in lease.notes or []:
            say(f"note: {printable(note)}\n")
        if parsed_args.wait:
            lease = self.wait_for(lease)
            if parsed_args.key_name:
                self._say_how_to_log_in(lease)
        return shown(MADE, lease)

    def _say_how_to_log_in(self, lease: Lease) -> None:
        try:
            vm = vms.look_up(self.app.client_manager.sdk_connection, lease.server["id"])
        except (SDKException, keystone.ClientException):
            return  # the VM is there all the same
        if hint := vms.ssh(vm):
            command, about = hint
            say(f"{command}: {about}\n")

    def _request(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return the fields of the request. Raises `CommandError` where options contradict each other."""
        request: dict[str, Any] = {"cgpus": cgpus.from_options(args)}
        server, consumer = self._server(args), _consumer(args)
        if args.no_server and server:
            raise exceptions.CommandError("--no-server cannot be combined with options of a VM")
        if not args.no_server and (consumer or args.keepalive):
            raise exceptions.CommandError(
                "--consumer-… and --keepalive are valid only with --no-server"
            )
        request["server"] = None if args.no_server else server
        if consumer:
            request["consumer"] = consumer
        for name in ("name", "priority", "keepalive", "duration", "ends_at", "movable"):
            if getattr(args, name) is not None:
                request[name] = getattr(args, name)
        if args.reservation is not None:
            reservation = self.gpus.find_reservation(args.reservation, ignore_missing=False)
            request["reservation"] = reservation.id
        if args.queue != 0:
            request["wait"] = args.queue
        return request

    def _server(self, args: argparse.Namespace) -> dict[str, Any]:
        """Return Nova's fields for the options given; the cloud chooses those that are missing."""
        cloud = self.app.client_manager.sdk_connection
        server: dict[str, Any] = {}
        if args.image:
            server["imageRef"] = cloud.image.find_image(args.image, ignore_missing=False).id
        if args.flavor:
            server["flavorRef"] = cloud.compute.find_flavor(args.flavor, ignore_missing=False).id
        if args.network:
            found = [
                cloud.network.find_network(name, ignore_missing=False) for name in args.network
            ]
            server["networks"] = [{"uuid": network.id} for network in found]
        if args.key_name:
            server["key_name"] = args.key_name
        if args.user_data:
            server["user_data"] = _user_data(args.user_data)
        if server and args.name:
            server["name"] = args.name
        return server


class ListLeases(Lister):
    """List the leases of your project that are not released"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        status = parser.add_mutually_exclusive_group()
        status.add_argument(
            "--ended",
            action="store_true",
            help="only released leases, with what they used; --changes-since says since when",
        )
        status.add_argument(
            "--status",
            metavar="<status>",
            type=str.upper,
            help="only leases in this status; released ones are listed with RELEASED only",
        )
        parser.add_argument("--name", metavar="<name>", help="only leases with this name")
        parser.add_argument(
            "--server", metavar="<server-id>", help="only the lease of the server with this ID"
        )
        parser.add_argument(
            "--all-projects",
            action="store_true",
            help="leases of all projects (administrators)",
        )
        parser.add_argument(
            "--changes-since",
            metavar="<time>",
            type=argument(for_api),
            help="only leases that have changed since then, released ones included: a date, or a time such as "
            "yesterday 9:00 or 2026-12-01T09:00Z",
        )
        parser.add_argument("--long", action="store_true", help="list further fields")
        add_list_options(parser, "name, status, created_at")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        found = self.gpus.leases(
            status="RELEASED" if parsed_args.ended else parsed_args.status,
            name=parsed_args.name,
            server_id=parsed_args.server,
            all_projects=parsed_args.all_projects or None,
            changes_since=parsed_args.changes_since,
            **list_query(parsed_args),
        )
        columns = LONG if parsed_args.long else ENDED if parsed_args.ended else LISTED
        return listed(columns, first(found, parsed_args.limit))


class ShowLease(ShowOne, LeaseCommand):
    """Show a lease"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_lease(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        return shown(SHOWN, self.find(parsed_args.lease, released=True))


class ListEvents(Lister, LeaseCommand):
    """List what happened to a lease"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_lease(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        lease = self.find(parsed_args.lease)
        return listed(EVENTS, self.gpus.get_lease(lease.id).events)


class SetLease(LeaseCommand):
    """Change the name, the end or the consent to moves of a lease, or its priority while it is in the queue"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_lease(parser)
        parser.add_argument("--name", metavar="<name>", help="its new name")
        parser.add_argument(
            "--priority",
            metavar="<number>",
            type=int,
            help="its new priority in the queue; only administrators may set one above 0",
        )
        ends = add_end(parser)
        ends.add_argument("--no-end", action="store_true", help="it has no end any more")
        add_movable(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        fields = ("name", "priority", "duration", "ends_at", "movable")
        changes = {name: getattr(parsed_args, name) for name in fields}
        changes = {name: value for name, value in changes.items() if value is not None}
        if parsed_args.no_end:
            changes["ends_at"] = None
        if not changes:
            raise exceptions.CommandError(
                "nothing to change: give --name, --priority, --movable, --for, --until or --no-end"
            )
        self.gpus.update_lease(self.find(parsed_args.lease).id, **changes)


class MoveLease(ShowOne, LeaseCommand):
    """Move cGPUs of a lease to other GPUs (administrators)"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_lease(parser)
        parser.add_argument(
            "--index",
            metavar="<number>",
            type=int,
            help="only this cGPU, counted from 0 (default: all of the lease)",
        )
        where = parser.add_mutually_exclusive_group()
        where.add_argument("--gpu", metavar="<gpu>", help="the GPU that it is to go to (UUID)")
        where.add_argument("--host", metavar="<host>", help="the host whose GPUs it is to go to")
        parser.add_argument(
            "--force", action="store_true", help="cut the connections that are open"
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="say what would be done, and do nothing"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        names = ("index", "gpu", "host", "force", "dry_run")
        wanted = {name: getattr(parsed_args, name) for name in names}
        wanted = {name: value for name, value in wanted.items() if value not in (None, False)}
        return shown(MOVE, self.gpus.move_lease(self.find(parsed_args.lease).id, **wanted))


class DeleteLeases(LeaseCommand):
    """End leases, and destroy their VMs"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_lease(parser, nargs="+")
        parser.add_argument(
            "--wait", action="store_true", help="return when the GPUs are free again"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        wanted: dict[str, tuple[str, Lease]] = {}
        ended, failed = [], 0
        # All are looked up before one is ended: afterwards, what called that may mean another one.
        for name in parsed_args.lease:
            try:
                lease = self.find(name)
                wanted.setdefault(lease.id, (name, lease))
            except SDKException as error:  # the others are to end all the same
                failed += 1
                LOG.error("%s: %s", name, message_of(error))
        for name, lease in wanted.values():
            try:
                self.gpus.delete_lease(lease, ignore_missing=False)
                ended.append(lease)
            except SDKException as error:
                failed += 1
                LOG.error("%s: %s", name, message_of(error))
        if parsed_args.wait:
            for lease in ended:
                self.gpus.wait_for_release(lease)
        if failed:
            raise exceptions.CommandError(
                f"{failed} of {len(parsed_args.lease)} leases could not be ended"
            )


class ShowEnvironment(ShowOne, LeaseCommand):
    """Show the environment with which programs find their cGPUs"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        add_lease(parser)
        parser.add_argument(
            "--export",
            action="store_true",
            help="print lines for a shell to evaluate, in the place of any other format",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        variables = self.gpus.get_lease_environment(self.find(parsed_args.lease).id)
        return tuple(variables), tuple(variables.values())

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]
    ) -> int:
        if not parsed_args.export:
            return super().produce_output(parsed_args, column_names, data)
        for name, value in zip(column_names, data, strict=True):
            self.app.stdout.write(f"export {name}={quote(value)}\n")
        return 0


def add_lease(parser: argparse.ArgumentParser, **more: Any) -> None:
    """Add the argument that names a lease; *more* are those of `add_argument`."""
    parser.add_argument(
        "lease", metavar="<lease>", help="lease (name, ID or its beginning, or server ID)", **more
    )


def add_end(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Add the options that say when a lease ends, of which one may be given; return their group."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--for",
        dest="duration",
        metavar="<duration>",
        type=argument(seconds),
        help="how long it lasts from when it has its cGPUs, such as 8h, 30m or 2d; then it is ended",
    )
    group.add_argument(
        "--until",
        dest="ends_at",
        metavar="<time>",
        type=argument(for_api),
        help="when it ends, such as 18:00, 'tomorrow 9:00' or 2026-12-01T09:00+01:00",
    )
    return group


def add_movable(parser: argparse.ArgumentParser) -> None:
    """Add the option with which the owner of a lease consents to moves."""
    parser.add_argument(
        "--movable",
        choices=("idle", "cut"),
        help="when operators may move it to other GPUs unasked: while no connection is open (idle, the default), or "
        "also with connections, which are cut (cut)",
    )


def _consumer(args: argparse.Namespace) -> dict[str, Any]:
    fields = {
        "host": args.consumer_host,
        "uid": args.consumer_uid,
        "address": args.consumer_address,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _queue_seconds(value: str) -> int | None:
    """Convert to a number of seconds; None for no limit. Raises `argparse.ArgumentTypeError`."""
    return None if value == UNLIMITED else argument(seconds)(value)


def _user_data(path: str) -> str:
    """Return the content of a file in base64, as Nova requires it. Raises `CommandError` if it cannot be read."""
    try:
        return b64encode(Path(path).read_bytes()).decode()
    except OSError as error:
        raise exceptions.CommandError(f"{path} cannot be read: {error.strerror}") from None
