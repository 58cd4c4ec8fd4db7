# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage`: what an operator runs before the services start, and to check an installation."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import logging
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from oslo_config import cfg
from oslo_utils import timeutils

from gsaas import conf
from gsaas.cli import prove, setup
from gsaas.cli import verify as verification
from gsaas.objects import host_names

DESCRIPTION = """\
Make a controller, a compute host or a GPU host of a machine (`gsaas-manage setup`), prepare the database in which GSaaS
keeps its leases and GPUs, register its limits with Keystone, and check an installation: run `gsaas-manage check` on a
controller at any time.

Run `gsaas-manage db upgrade` before the first start, and after every update of GSaaS while
gsaas-api and gsaas-engine are stopped. If the database is up to date, it changes nothing.
"""

EPILOG = """\
The database is the one that [database]connection names in the configuration, for example:

    connection = mysql+pymysql://gsaas:PASSWORD@db.example.org/gsaas
    connection = postgresql+psycopg://gsaas:PASSWORD@db.example.org/gsaas
    connection = sqlite:////var/lib/gsaas/gsaas.sqlite

Exit status: 0 if everything is as this release needs it; 1 if it is not; 2 if the command could not
find out (wrong usage, an error in the configuration, no connection); 130 if it was interrupted.
"""

INSTALLATION = "check this installation: database, message bus, agents, Keystone, Nova, quotas"
INSTALLATION_MORE = """\
Check everything that a controller can see of this installation, and say what to do about each problem. Changes
nothing. A service that does not answer delays it by half a minute at most.
"""
UPGRADE = "create the tables, or change them to what this release needs; keeps all data"
VERSION = "print the revision that the database is at, or `none`"
CHECK = "say whether the database is at the revision that this release needs"
RECOUNT = "count again what leases claim and reservations keep of each GPU"
RECOUNT_MORE = """\
Compare what is counted of each GPU with what leases claim of it and reservations keep; correct what differs, and print
it. A difference is a defect of GSaaS; `gsaas-manage check` looks for it, too. The services may run meanwhile: each GPU
is a transaction of its own. Exit status: 0, whether or not something was corrected.
"""
PURGE = "delete the rows of leases that were released long ago"
PURGE_MORE = """\
Delete the rows of leases that were released more than so many days ago, and of their events. Leases that are not
released are never deleted. What is deleted no longer counts in `gsaas usage`. The services may run meanwhile: each
batch is a transaction of its own. Idempotency keys of requests are forgotten after a day, and rows of
projects that have no lease are deleted.
"""
REGISTER = "create the registered limits that Keystone lacks, with the values of [quotas]"
REGISTER_MORE = """\
Create the registered limits that Keystone lacks. The values of [quotas] become what every project gets unless
`openstack limit create` sets another value for it. Existing registered limits are not changed. Authenticates as the
administrator whom OS_CLOUD, or the other OS_ variables, name.
"""

GRANT_KEY = "print a new key for [grants]key"
GRANT_KEY_MORE = """\
Print a new key for signing grants, as [grants]key takes it, named after today's date. Add it on all controllers
after the current key; then, on all of them, move it before the current key; when [grants]lifetime has passed, remove
the old key.
"""

BUS_KEY = "print a new secret for [bus]secrets, or the key of a host's agent for [bus]host_keys"
BUS_KEY_MORE = """\
Without HOST, print a new secret for [bus]secrets of all controllers. With HOST and --role, print the key that this
agent of the host shares with the controllers, for [bus]host_keys in the agent's own configuration: derived from the
first of [bus]secrets. The key of one role is of no use for the other.
"""
BUS_PERMISSIONS = "print or set what the account of a host may do on RabbitMQ"
BUS_PERMISSIONS_MORE = """\
Print the commands that give the RabbitMQ account of a host its permissions: it reads the queues of its own agents only,
and sends to the engine, over a bounded number of connections. With --apply, run them, on a machine where rabbitmqctl
administers the broker. The account and the virtual host have to exist: rabbitmqctl add_vhost gsaas; rabbitmqctl
add_user gsaas-HOST PASSWORD.
"""

EXIT_OK, EXIT_PROBLEM, EXIT_UNKNOWN, EXIT_INTERRUPTED = 0, 1, 2, 130
"""Exit statuses, as `EPILOG` explains them."""

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from gsaas.checkup.findings import Finding
    from gsaas.db.database import Database


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    args = _parser().parse_args(argv)
    try:
        options = vars(args)
        configure: Callable[[str | None], cfg.ConfigOpts] = options.pop("configure", _configure)
        settings = configure(args.config_file)
        run: Callable[..., int] = options.pop("run")
        del options["config_file"]
        return run(settings, **options)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PROBLEM
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)
    except cfg.Error as error:
        return _fail(f"the configuration cannot be used: {error}", EXIT_UNKNOWN)
    except _UnusableDatabaseError as error:
        return _fail(str(error), EXIT_UNKNOWN)


def _configure(config_file: str | None) -> cfg.ConfigOpts:
    return conf.load(["--config-file", config_file] if config_file else [])


class _UnusableDatabaseError(Exception):
    """The database cannot be used; the text says why, and what to do."""


def upgrade(database: Database) -> int:
    """Migrate the database to this release's revision, and print what was done. Returns the exit status."""
    from gsaas.db import migration, ready

    before = migration.version(database)
    problem = ready.problem(before)
    if problem and before is not None and not migration.knows(before):
        return _fail(problem, EXIT_PROBLEM)
    migration.upgrade(database)
    if before == migration.head():
        print(f"nothing to do: the database is at revision {before}")
    else:
        print(f"the database is now at revision {migration.head()}; it was at {before or 'none'}")
    return EXIT_OK


def version(database: Database) -> int:
    """Print the revision of the database, for scripts. Returns the exit status."""
    from gsaas.db import migration

    print(migration.version(database) or "none")
    return EXIT_OK


def check(database: Database) -> int:
    """Print whether the services can start on this database. Returns the exit status."""
    from gsaas.db import migration, ready

    current = migration.version(database)
    if problem := ready.problem(current):
        return _fail(problem, EXIT_PROBLEM)
    print(f"the database is at revision {current}, as this release needs it")
    return EXIT_OK


def recount(database: Database) -> int:
    """Correct the counts of GPUs, and print those that were wrong. Returns the exit status."""
    from gsaas.db import recount as rows

    def correct(uuid: str) -> bool:
        return database.change(lambda connection: rows.recount(connection, uuid))

    with database.reading() as connection:
        found = rows.miscounted(connection)
    corrected = [one for one in found if correct(one.uuid)]
    for one in corrected:
        print(f"corrected: {one}")
    if not corrected:
        print(
            "nothing to do: what is counted of each GPU is what leases claim and reservations keep"
        )
    return EXIT_OK


def purge(
    settings: cfg.ConfigOpts, older_than: int | None, batch: int, dry_run: bool, format: str
) -> int:
    """Delete leases that were released more than *older_than* days ago, *batch* at a time. Returns the exit status."""
    from gsaas.db import history

    days = settings.engine.keep_released if older_than is None else older_than
    moment = timeutils.utcnow() - datetime.timedelta(days=days)
    with _database(settings) as database:
        if dry_run:
            with database.reading() as connection:
                found = history.released_before(connection, moment)
        else:
            found = delete_released(database, moment, batch)
    if format == "json":
        before = f"{moment.isoformat(timespec='seconds')}Z"
        print(json.dumps({"released_before": before, "leases": found, "dry_run": dry_run}))
    else:
        did = "would delete" if dry_run else "deleted"
        print(f"{did} {found} leases that were released before {moment:%Y-%m-%d %H:%M} UTC")
    return EXIT_OK


def delete_released(database: Database, moment: datetime.datetime, batch: int) -> int:
    """Delete leases released before *moment* (UTC), and keys and projects that are not needed; return how many leases.

    At most *batch* rows at a time.
    """
    from gsaas.db import history, projects, request_keys

    found = sum(_in_batches(database, lambda one: history.purge(one, moment, batch)))
    few = min(batch, 500)
    for _ in _in_batches(database, lambda one: request_keys.purge(one, few)):
        pass
    for _ in _in_batches(database, lambda one: projects.purge(one, few)):
        pass
    return found


def _in_batches(database: Database, purge_some: Callable[[Connection], int]) -> Iterator[int]:
    """Purge one batch after the other, each in a transaction of its own, and yield the number of its rows."""
    while purged := database.change(purge_some):
        yield purged


def register(settings: cfg.ConfigOpts) -> int:
    """Create the registered limits that Keystone lacks, and print all of them. Returns the exit status."""
    import openstack
    from keystoneauth1.exceptions import ClientException
    from openstack.exceptions import SDKException

    from gsaas.limits import registered
    from gsaas.limits.base import UNITS

    defaults = {name: settings.quotas[name] for name in UNITS}
    try:
        for limit in registered.register(openstack.connect().identity, defaults):
            state = "registered" if limit.new else "there already"
            print(f"{limit.name} in region {limit.region or '(any)'}: {limit.limit}, {state}")
    except registered.ServiceNotRegistered as error:
        return _fail(str(error), EXIT_PROBLEM)
    except (ClientException, SDKException) as error:
        message = " ".join(str(error).split())
        return _fail(f"Keystone rejects the request, or does not answer: {message}", EXIT_UNKNOWN)
    return EXIT_OK


def check_installation(settings: cfg.ConfigOpts, format: str) -> int:
    """Print the findings of a check-up as *format*, `table` or `json`. Returns the exit status."""
    from gsaas.checkup import findings, parts

    logging.disable()  # the findings contain what libraries would log about a failure
    found: list[Finding] = []
    for finding in parts.check_all(settings):
        found.append(finding)
        if format == "table":
            _print_finding(finding)
    if format == "json":
        print(json.dumps([dataclasses.asdict(finding) for finding in found], indent=2))
    return EXIT_PROBLEM if findings.failed(found) else EXIT_OK


def verify(settings: cfg.ConfigOpts, **options: Any) -> int:
    """Compare database, cloud and agents, as `gsaas.cli.verify` describes. Returns the exit status."""
    from gsaas.cloud import base

    with _database(settings) as database:
        try:
            cloud = base.load(settings.engine.cloud, settings)
            return verification.verify(settings, database, cloud, **options)
        except ValueError as error:
            return _fail(f"the configuration cannot be used: {error}", EXIT_UNKNOWN)


def _print_finding(finding: Finding) -> None:
    """Print a finding without delay, because the next check may be slow."""
    print(f"{finding.level:<5} {finding.part:<14} {finding.said}")
    if finding.todo:
        print(f"{'':<20} -> {finding.todo}")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gsaas-manage",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config-file",
        metavar="FILE",
        help="read this configuration instead of /etc/gsaas/gsaas.conf",
    )
    nouns = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    command = nouns.add_parser("check", help=INSTALLATION, description=INSTALLATION_MORE)
    command.add_argument(
        "-f",
        "--format",
        choices=("table", "json"),
        default="table",
        help="lines for people (default), or a JSON list of {part, level, said, todo}",
    )
    command.set_defaults(run=check_installation)
    verification.add_parser(nouns, _number(0, verification.LONGEST_SETTLE), verify)
    db = nouns.add_parser("db", help="the database: db upgrade, version, check, recount, purge")
    verbs = db.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for run, text in ((upgrade, UPGRADE), (version, VERSION), (check, CHECK)):
        command = verbs.add_parser(run.__name__, help=text, description=f"{text.capitalize()}.")
        command.set_defaults(run=_with_database(run))
    command = verbs.add_parser("recount", help=RECOUNT, description=RECOUNT_MORE)
    command.set_defaults(run=_with_database(recount))
    command = verbs.add_parser("purge", help=PURGE, description=PURGE_MORE)
    command.add_argument(
        "--older-than",
        metavar="DAYS",
        type=_number(0, 36500),
        help="delete what was released more than DAYS days ago, instead of [engine]keep_released",
    )
    command.add_argument(
        "--batch",
        metavar="N",
        type=_number(1, 10000),
        default=500,
        help="delete N leases in each transaction (default: 500)",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="only say how many leases would be deleted"
    )
    command.add_argument(
        "-f",
        "--format",
        choices=("table", "json"),
        default="table",
        help="a line for people (default), or a JSON object of {released_before, leases, dry_run}",
    )
    command.set_defaults(run=purge)
    command = nouns.add_parser("grant-key", help=GRANT_KEY, description=GRANT_KEY_MORE)
    command.set_defaults(run=grant_key)
    _add_bus_commands(nouns)
    prove.add_parsers(nouns)
    setup.add_parsers(nouns)
    limits = nouns.add_parser("limits", help="Keystone's limits: limits register")
    verbs = limits.add_subparsers(title="commands", metavar="COMMAND", required=True)
    command = verbs.add_parser("register", help=REGISTER, description=REGISTER_MORE)
    command.set_defaults(run=register)
    return parser


def _add_bus_commands(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bus = nouns.add_parser("bus", help="the message bus: bus key, bus permissions")
    verbs = bus.add_subparsers(title="commands", metavar="COMMAND", required=True)
    command = verbs.add_parser("key", help=BUS_KEY, description=BUS_KEY_MORE)
    command.add_argument(
        "host", metavar="HOST", nargs="?", help="print the key of an agent of this host"
    )
    command.add_argument(
        "--role",
        choices=("gpu", "compute"),
        help="with HOST: gpu for gsaas-monitor, compute for gsaas-rodvr",
    )
    command.set_defaults(run=bus_key)
    command = verbs.add_parser(
        "permissions", help=BUS_PERMISSIONS, description=BUS_PERMISSIONS_MORE
    )
    command.add_argument("host", metavar="HOST", help="the host, by the name of its agents")
    command.add_argument(
        "--role",
        action="append",
        choices=("gpu", "compute"),
        required=True,
        dest="roles",
        help="gpu: it runs gsaas-monitor; compute: gsaas-rodvr; twice for a host that runs both",
    )
    command.add_argument("--account", metavar="NAME", help="default: gsaas-HOST")
    command.add_argument("--virtual-host", metavar="NAME", default="gsaas", help="default: gsaas")
    command.add_argument("--apply", action="store_true", help="run the commands")
    command.set_defaults(run=bus_permissions)


def bus_key(settings: cfg.ConfigOpts, host: str | None, role: str | None) -> int:
    """Print a new secret for [bus]secrets, or the key of an agent of *host*. Returns the exit status."""
    from gsaas import rpc
    from gsaas.rpc import signatures

    if (host is None) != (role is None):
        return _fail("HOST and --role need each other: a key belongs to one agent", EXIT_UNKNOWN)
    if host is None or role is None:
        print(secrets.token_urlsafe(32))
        return EXIT_OK
    if not host_names.is_valid(host):
        return _fail(f"{host!r} is not a host name: {host_names.RULE}", EXIT_UNKNOWN)
    if not settings.bus.secrets:
        return _fail("[bus]secrets is not set: make one with gsaas-manage bus key", EXIT_PROBLEM)
    print(signatures.key_of(settings.bus.secrets[0], rpc.agent_name(rpc.ROLES[role], host)))
    return EXIT_OK


def bus_permissions(
    _settings: cfg.ConfigOpts,
    host: str,
    roles: list[str],
    account: str | None,
    virtual_host: str,
    apply: bool,
) -> int:
    """Print the commands that set the permissions of the account of *host*, or run them. Returns the exit status."""
    from gsaas.rpc import permissions

    if not host_names.is_valid(host):
        return _fail(f"{host!r} is not a host name: {host_names.RULE}", EXIT_UNKNOWN)
    allowed = permissions.of_host(host, roles)
    for command in allowed.commands(virtual_host, account or f"gsaas-{host}"):
        print(shlex.join(command))
        if apply:
            try:
                subprocess.run(command, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                return _fail(f"that failed: {error}", EXIT_UNKNOWN)
    return EXIT_OK


def grant_key(_settings: cfg.ConfigOpts) -> int:
    """Print a new key for [grants]key; store nothing. Returns the exit status."""
    print(f"{datetime.date.today():%Y%m%d}:{secrets.token_urlsafe(32)}")
    return EXIT_OK


def _with_database(run: Callable[[Database], int]) -> Callable[[cfg.ConfigOpts], int]:
    """Return *run* as a command, which opens the configured database first."""

    def command(settings: cfg.ConfigOpts) -> int:
        with _database(settings) as database:
            return run(database)

    return command


@contextmanager
def _database(settings: cfg.ConfigOpts) -> Iterator[Database]:
    """Open the configured database; raise `_UnusableDatabaseError` if that fails, or anything while it is open."""
    # Imported here: GPU hosts, where this program proves them, have no database library.
    from gsaas.db import ready

    try:
        database = ready.connect(settings)
    except ready.Unusable as error:
        raise _UnusableDatabaseError(str(error)) from error
    try:
        yield database
    except ready.Unusable as error:
        raise _UnusableDatabaseError(str(error)) from error
    except (*ready.ERRORS, TimeoutError) as error:
        where = ready.printable(settings.database.connection)
        raise _UnusableDatabaseError(f"{where} failed: {ready.cause(error)}") from error
    finally:
        database.close()


def _number(least: int, most: int) -> Callable[[str], int]:
    """Return a function that reads a whole number of a command line from *least* to *most*."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text} is not a whole number from {least} to {most}")
        return int(text)

    return number


def _fail(sentence: str, status: int) -> int:
    """Print *sentence* to stderr and return *status*."""
    print(f"gsaas-manage: {sentence}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
