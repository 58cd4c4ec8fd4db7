# SPDX-License-Identifier: Apache-2.0
"""What other services keep for controllers: accounts, a virtual host, a database, and entries in Keystone.

1. Whether it is so, GSaaS asks as its services will: with the accounts and the configuration that they get.
2. What is missing is made with `rabbitmqctl`, with `mariadb`, and with the credentials of an administrator of Keystone
   in the environment.
3. No password of controllers is changed: other controllers may run with it.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import json
import os
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from oslo_config import cfg

from gsaas import conf, rpc
from gsaas.setup import texts
from gsaas.setup.answers import Controller
from gsaas.setup.machine import LeftToDo, State, Step, run

# Agents' hosts have no libraries of databases, and need none of this. So these are imported when they are used.
if TYPE_CHECKING:
    from gsaas.db import database

SERVICE_TYPE = "gpu-scheduling"
QUEUES = '{"max-queues": 20000}'
EXPIRES = '{"expires": 1800000}'
AGENTS = "@gsaas-(monitor|rodvr)"
ROLES = ("service", "admin")
DOMAIN = "default"


@dataclass(frozen=True)
class Account(Step):
    """What a service keeps for controllers, their account included."""

    settings: str
    """The text of gsaas.conf."""
    answers: Controller

    kept: ClassVar[str] = texts.kept("controller")
    answer: ClassVar[str]
    """The name of the one that is the account's password."""

    @property
    def conf(self) -> cfg.ConfigOpts:
        """The configuration that controllers' processes have, with the operator's own options."""
        return _loaded(self.settings)

    @abc.abstractmethod
    def check(self) -> State:
        """Return how it is. Raises `LeftToDo` with the reason if it cannot be used."""

    @abc.abstractmethod
    def create(self) -> None:
        """Make what is missing. Raises `LeftToDo`."""

    def state(self) -> State:
        try:
            return self.check()
        except LeftToDo:
            return State.MISSING

    def make(self) -> None:
        self.create()
        try:
            self.check()
        except LeftToDo as error:
            raise LeftToDo(
                f"{error}; if another controller has made the account {texts.ACCOUNT}, run this with --answers and a "
                f"copy of its {self.kept}; otherwise change the account's password to {self.answer} in {self.kept} here"
            ) from error

    def typed(self, *commands: str) -> list[str]:
        """Return *commands* with PASSWORD in them, and where that is."""
        return [f"# PASSWORD is {self.answer} in {self.kept}", *commands]


class BusAccount(Account):
    """The account of controllers on RabbitMQ, and the virtual host of GSaaS."""

    answer = "bus_password"

    def __str__(self) -> str:
        return f"RabbitMQ: the virtual host {texts.VIRTUAL_HOST} and the account {texts.ACCOUNT}"

    def check(self) -> State:
        try:
            for url in (None, self.conf.nova.notification_url):
                bus = rpc.connect(self.conf, url)
                try:
                    rpc.check(bus)
                finally:
                    bus.cleanup()
        except rpc.BusError as error:
            raise LeftToDo(f"RabbitMQ: {error}") from error
        return State.RIGHT

    def create(self) -> None:
        host, account = texts.VIRTUAL_HOST, texts.ACCOUNT
        add = [
            ("add_vhost", host),
            ("set_vhost_limits", "-p", host, QUEUES),
            ("set_policy", "-p", host, "agents", AGENTS, EXPIRES, "--apply-to", "queues"),
        ]
        # These come last: as long as they are missing, `state` is MISSING.
        permit = [
            ("set_permissions", *where, account, *(".*",) * 3) for where in ((), ("-p", host))
        ]
        try:
            for one in () if host in listed("vhosts", "name") else add:
                run("rabbitmqctl", *one)
            if account not in listed("users", "user"):
                set_password("add_user", account, self.answers.bus_password)
            for one in permit:
                run("rabbitmqctl", *one)
        except LeftToDo as error:
            all_of_it = [*add, ("add_user", account, "PASSWORD"), *permit]
            todo = self.typed(*(shlex.join(["rabbitmqctl", *one]) for one in all_of_it))
            raise LeftToDo(f"{error}; type where the message bus is:", todo) from error


def listed(what: str, key: str) -> set[str]:
    """Return the names that `rabbitmqctl list_`*what* has under *key*; raises `LeftToDo`."""
    said = run("rabbitmqctl", f"list_{what}", "--quiet", "--formatter", "json").stdout
    return {one[key] for one in json.loads(said)}


def set_password(command: str, account: str, password: str) -> None:
    """Type a *command* of rabbitmqctl that gives *account* this password, which is on no command line."""
    run("rabbitmqctl", command, account, stdin=f"{password}\n")


class Database(Account):
    """A database with the tables of this release, and an account that may do everything in it.

    What the operator names by its URL is there, with its account.
    """

    answer = "database_password"

    def __str__(self) -> str:
        return f"the database, its account {texts.ACCOUNT}, and the tables of this release"

    @property
    def is_made(self) -> bool:
        """Whether setup makes the account."""
        return "://" not in self.answers.database

    def check(self) -> State:
        from gsaas.db import migration

        with self._connected() as database:
            current = migration.version(database)
        if current is None:
            return State.MISSING
        return State.RIGHT if current == migration.head() else State.DIFFERENT

    def make(self) -> None:
        from gsaas.db import migration, ready

        if self.is_made and not self._is_there():
            super().make()
        with self._connected() as database:
            current = migration.version(database)
            if current is None:
                migration.upgrade(database)
            elif migration.knows(current):
                raise LeftToDo(
                    "the tables are those of another release: see Updating in the operator's guide",
                    ["gsaas-manage db upgrade"],
                )
            else:
                raise LeftToDo(ready.problem(current) or "")

    def create(self) -> None:
        account = f"{texts.ACCOUNT}@'%'"
        statements = [
            "CREATE DATABASE IF NOT EXISTS gsaas CHARACTER SET utf8mb4",
            f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY 'PASSWORD'",
            f"GRANT ALL ON gsaas.* TO {account}",
        ]
        sql = "; ".join(statements)
        try:
            run("mariadb", stdin=sql.replace("PASSWORD", self.answers.database_password))
        except LeftToDo as error:
            todo = self.typed(f'mariadb -e "{sql}"')
            raise LeftToDo(f"{error}; type where root administers the database:", todo) from error

    def _is_there(self) -> bool:
        try:
            with self._connected():
                return True
        except LeftToDo:
            return False

    @contextlib.contextmanager
    def _connected(self) -> Iterator[database.Database]:
        """Connect as the services will. Raises `LeftToDo`."""
        from gsaas.db import ready

        try:
            connection = ready.connect(self.conf)
        except ready.Unusable as error:
            raise LeftToDo(str(error)) from error
        try:
            yield connection
        finally:
            connection.close()


class KeystoneEntries(Account):
    """User, roles, service and endpoints in Keystone."""

    answer = "keystone_password"

    def __str__(self) -> str:
        return f"Keystone: the user {texts.ACCOUNT}, its roles, the service {SERVICE_TYPE} and its endpoints"

    @property
    def endpoints(self) -> dict[str, str]:
        return {"public": self.answers.url, "internal": self.answers.internal_url}

    def check(self) -> State:
        """Return what a token of the service's user says of its roles and of the catalogue."""
        from keystoneauth1.exceptions import CatalogException, ClientException

        from gsaas.checkup import identity

        session = identity.session_of(self.conf, "service_user")
        try:
            if session is None or not set(ROLES) <= set(identity.roles_of(session)):
                raise LeftToDo(f"the user of [service_user] lacks a role of {', '.join(ROLES)}")
            for interface, url in self.endpoints.items():
                found = session.get_endpoint(
                    service_type=SERVICE_TYPE, interface=interface, region_name=self.answers.region
                )
                if found is None:
                    return State.MISSING
                if found.rstrip("/") != url.rstrip("/"):
                    return State.DIFFERENT
        except (ClientException, CatalogException) as error:
            raise LeftToDo(f"Keystone: {error}") from error
        return State.RIGHT

    def create(self) -> None:
        """Make or correct the entries, as the administrator of the environment; raises `LeftToDo`."""
        if not {"OS_CLOUD", "OS_AUTH_URL"} & os.environ.keys():
            raise LeftToDo(
                "there are no credentials of an administrator (OS_CLOUD); with them, run this again, or type:",
                self.typed(*self._commands()),
            )
        import openstack
        from keystoneauth1.exceptions import ClientException
        from openstack.exceptions import SDKException

        try:
            self._create(openstack.connect().identity)
        except (ClientException, SDKException) as error:
            said = " ".join(str(error).split())
            raise LeftToDo(f"Keystone rejects the request, or does not answer: {said}") from error

    def _commands(self) -> list[str]:
        user, project = texts.ACCOUNT, self.answers.service_project
        endpoint = f"openstack endpoint create --region {self.answers.region} {SERVICE_TYPE}"
        return [
            f"openstack user create --domain {DOMAIN} --password PASSWORD {user}",
            *(f"openstack role add --project {project} --user {user} {role}" for role in ROLES),
            f'openstack service create --name {user} --description "GPU scheduling" {SERVICE_TYPE}',
            *(f"{endpoint} {interface} {url}" for interface, url in self.endpoints.items()),
        ]

    def _create(self, identity: Any) -> None:
        """Make what is missing with *identity*, the SDK's proxy of an administrator; raises what the SDK raises."""
        name, region = texts.ACCOUNT, self.answers.region
        user = identity.find_user(name, domain_id=DOMAIN) or identity.create_user(
            name=name, domain_id=DOMAIN, password=self.answers.keystone_password
        )
        project = identity.find_project(
            self.answers.service_project, domain_id=DOMAIN, ignore_missing=False
        )
        for wanted in ROLES:
            role = identity.find_role(wanted) or identity.create_role(name=wanted)
            identity.assign_project_role_to_user(project, user, role)
        service = next(identity.services(type=SERVICE_TYPE), None) or identity.create_service(
            name=name, type=SERVICE_TYPE, description="GPU scheduling"
        )
        for interface, url in self.endpoints.items():
            where = {"service_id": service.id, "interface": interface}
            there = [one for one in identity.endpoints(**where) if one.region_id == region]
            for one in there:
                identity.update_endpoint(one, url=url)
            if not there:
                identity.create_endpoint(**where, region_id=region, url=url)


@functools.cache
def _loaded(text: str) -> cfg.ConfigOpts:
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:  # root's own
        file.write(text)
        file.flush()
        return conf.load(files=[file.name])
