"""gsaas-manage: what an operator does before the services start, and to see whether all is well."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oslo_config import cfg

from gsaas import conf
from gsaas.db import migration, ready
from gsaas.db.database import Database

DESCRIPTION = """\
Prepare the database in which GSaaS keeps its leases and GPUs, tell Keystone of its limits, and look whether the
installation is sound: `gsaas-manage check`, on a controller, whenever you wonder.

Run `gsaas-manage db upgrade` before the first start, and after every update of GSaaS while
gsaas-api and gsaas-engine are stopped. Where there is nothing to do, it does nothing.
"""

EPILOG = """\
The database is the one that [database]connection names in the configuration, for example:

    connection = mysql+pymysql://gsaas:PASSWORD@db.example.org/gsaas
    connection = postgresql+psycopg://gsaas:PASSWORD@db.example.org/gsaas
    connection = sqlite:////var/lib/gsaas/gsaas.sqlite

Exit status: 0, all is well; 1, it is not as this release needs it; 2, it could not be asked (wrong
usage, an error in the configuration, no connection).
"""

SOUND = (
    "look whether this installation is sound: database, message bus, agents, Keystone, Nova, quotas"
)
SOUND_MORE = """\
Look at everything that a controller can see of this installation, and say what to do about what is not well. Changes
nothing. Takes as long as whatever does not answer: half a minute at most for each.
"""
UPGRADE = "make the tables, or change them to what this release needs; keeps all data"
VERSION = "print the revision that the database is at, or `none`"
CHECK = "say whether the database is at the revision that this release needs"
REGISTER = "make the registered limits in Keystone that are missing, with the values of [quotas]"
REGISTER_MORE = """\
Make the registered limits in Keystone that are missing, with the values of [quotas] as what every
project gets unless `openstack limit create` says otherwise. What is there stays as it is. Asks
Keystone as an administrator: OS_CLOUD, or the other OS_ variables, say which.
"""

GRANT_KEY = "print a new key for [grants]key"
GRANT_KEY_MORE = """\
Print a new key to sign grants with, as [grants]key takes it, named after today. Put it on all controllers,
behind the one that is there; then in front of it; and remove the old one when [grants]lifetime has passed.
"""

FINE, NOT_FINE, UNUSABLE = 0, 1, 2

if TYPE_CHECKING:
    from gsaas.checkup.findings import Finding


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    args = _parser().parse_args(argv)
    try:
        settings = conf.load(["--config-file", args.config_file] if args.config_file else [])
        options = vars(args)
        run = options.pop("run")
        del options["config_file"]
        return run(settings, **options)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_FINE
    except cfg.Error as error:
        return _complain(f"the configuration cannot be used: {error}", UNUSABLE)
    except ready.Unusable as error:
        return _complain(str(error), UNUSABLE)


def upgrade(database: Database) -> int:
    """Bring the database to this release's revision, and say what was done."""
    before = migration.version(database)
    if before is not None and not migration.knows(before):
        return _complain(ready.problem(before), NOT_FINE)
    migration.upgrade(database)
    if before == migration.head():
        print(f"nothing to do: the database is at revision {before}")
    else:
        print(f"the database is now at revision {migration.head()}; it was at {before or 'none'}")
    return FINE


def version(database: Database) -> int:
    """Print the revision of the database, for scripts."""
    print(migration.version(database) or "none")
    return FINE


def check(database: Database) -> int:
    """Say whether the services may start on this database."""
    current = migration.version(database)
    if problem := ready.problem(current):
        return _complain(problem, NOT_FINE)
    print(f"the database is at revision {current}, as this release needs it")
    return FINE


def register(settings: cfg.ConfigOpts) -> int:
    """Make the registered limits that Keystone lacks, and say what it has."""
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
        return _complain(str(error), NOT_FINE)
    except (ClientException, SDKException) as error:
        said = " ".join(str(error).split())
        return _complain(f"Keystone could not be asked: {said}", UNUSABLE)
    return FINE


def sound(settings: cfg.ConfigOpts, format: str) -> int:
    """Print what a check-up finds, and say whether anything keeps GSaaS from working."""
    from gsaas.checkup import findings, parts

    logging.disable()  # what libraries have to say of a failure is in the finding
    found = []
    for finding in parts.look(settings):
        found.append(finding)
        if format == "table":
            _show(finding)
    if format == "json":
        print(json.dumps([dataclasses.asdict(finding) for finding in found], indent=2))
    return NOT_FINE if findings.failed(found) else FINE


def _show(finding: Finding) -> None:
    """One finding, at once: some parts take their time."""
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
    command = nouns.add_parser("check", help=SOUND, description=SOUND_MORE)
    command.add_argument(
        "-f",
        "--format",
        choices=("table", "json"),
        default="table",
        help="lines for people (default), or a JSON list of {part, level, said, todo}",
    )
    command.set_defaults(run=sound)
    db = nouns.add_parser("db", help="the database: db upgrade, db version, db check")
    verbs = db.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for run, text in ((upgrade, UPGRADE), (version, VERSION), (check, CHECK)):
        command = verbs.add_parser(run.__name__, help=text, description=f"{text.capitalize()}.")
        command.set_defaults(run=_on_the_database(run))
    command = nouns.add_parser("grant-key", help=GRANT_KEY, description=GRANT_KEY_MORE)
    command.set_defaults(run=grant_key)
    limits = nouns.add_parser("limits", help="Keystone's limits: limits register")
    verbs = limits.add_subparsers(title="commands", metavar="COMMAND", required=True)
    command = verbs.add_parser("register", help=REGISTER, description=REGISTER_MORE)
    command.set_defaults(run=register)
    return parser


def grant_key(_settings: cfg.ConfigOpts) -> int:
    """Print a new key; nothing is stored."""
    print(f"{datetime.date.today():%Y%m%d}:{secrets.token_urlsafe(32)}")
    return FINE


def _on_the_database(run: Callable[[Database], int]) -> Callable[[cfg.ConfigOpts], int]:
    def run_on_it(settings: cfg.ConfigOpts) -> int:
        with _database(settings) as database:
            return run(database)

    return run_on_it


@contextmanager
def _database(settings: cfg.ConfigOpts) -> Iterator[Database]:
    """Open the configured database; raises `Unusable`, also for what fails while it is open."""
    database = ready.connect(settings)
    try:
        yield database
    except (*ready.ERRORS, TimeoutError) as error:
        where = ready.printable(settings.database.connection)
        raise ready.Unusable(f"{where} failed: {ready.cause(error)}") from error
    finally:
        database.close()


def _complain(sentence: str, status: int) -> int:
    print(f"gsaas-manage: {sentence}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
