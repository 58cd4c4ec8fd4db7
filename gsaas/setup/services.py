# SPDX-License-Identifier: Apache-2.0
"""What other services keep for a controller: whether it is as a step says, and what makes it so.

Whether it is so, GSaaS asks as its services will: with the accounts and the configuration that they get. What is
missing is made with `rabbitmqctl`, with `mariadb`, and with the credentials of an administrator of Keystone in the
environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from gsaas import rpc
from gsaas.setup import texts
from gsaas.setup.machine import LeftToDo, State, run
from gsaas.setup.plan import BusAccount, DatabaseAccount, KeystoneEntries, kept

if TYPE_CHECKING:
    from gsaas.db.database import Database

SERVICE_TYPE = "gpu-scheduling"
QUEUES = '{"max-queues": 20000}'
EXPIRES = '{"expires": 1800000}'
AGENTS = "@gsaas-(monitor|rodvr)"


def _with_password(name: str, commands: list[str]) -> list[str]:
    return [f"# PASSWORD is {name} in {kept('controller')}", *commands]


class Bus:
    """RabbitMQ, for controllers."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    def state(self) -> State:
        """Return whether the account of controllers may use the virtual hosts of GSaaS and of Nova."""
        try:
            for url in (None, self._conf.nova.notification_url):
                bus = rpc.connect(self._conf, url)
                try:
                    rpc.check(bus)
                finally:
                    bus.cleanup()
        except rpc.BusError:
            return State.MISSING
        return State.RIGHT

    def make(self, step: BusAccount) -> None:
        """Make the virtual host and the account; raises `LeftToDo`."""
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
            have_account(account, step.password)
            for one in permit:
                run("rabbitmqctl", *one)
        except LeftToDo as error:
            typed = [*add, ("add_user", account, "PASSWORD"), *permit]
            commands = [shlex.join(["rabbitmqctl", *one]) for one in typed]
            todo = _with_password("bus_password", commands)
            raise LeftToDo(f"{error}; type where the message bus is:", todo) from error


def listed(what: str, key: str) -> set[str]:
    """Return the names that `rabbitmqctl list_`*what* has under *key*; raises `LeftToDo`."""
    said = run("rabbitmqctl", f"list_{what}", "--quiet", "--formatter", "json").stdout
    return {one[key] for one in json.loads(said)}


def have_account(account: str, password: str) -> None:
    """Make *account* on RabbitMQ, or give it this password; the password is on no command line."""
    known = account in listed("users", "user")
    run("rabbitmqctl", "change_password" if known else "add_user", account, stdin=f"{password}\n")


class Sql:
    """The database."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Database]:
        from gsaas.db import ready

        try:
            database = ready.connect(self._conf)
        except ready.Unusable as error:
            raise LeftToDo(str(error)) from error
        try:
            yield database
        finally:
            database.close()

    def state(self) -> State:
        """Return whether the account can use the database."""
        try:
            with self._connected():
                return State.RIGHT
        except LeftToDo:
            return State.MISSING

    def make(self, step: DatabaseAccount) -> None:
        """Make the database and the account; raises `LeftToDo`."""
        if step.password is None:
            with self._connected():
                return
        account = f"{texts.ACCOUNT}@'%'"
        statements = [
            "CREATE DATABASE IF NOT EXISTS gsaas CHARACTER SET utf8mb4",
            f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY 'PASSWORD'",
            f"ALTER USER {account} IDENTIFIED BY 'PASSWORD'",
            f"GRANT ALL ON gsaas.* TO {account}",
        ]
        sql = "; ".join(statements)
        todo = _with_password("database_password", [f'mariadb -e "{sql}"'])
        try:
            run("mariadb", stdin=sql.replace("PASSWORD", step.password))
        except LeftToDo as error:
            raise LeftToDo(f"{error}; type where root administers the database:", todo) from error
        with self._connected():
            pass

    def state_of_tables(self) -> State:
        """Return whether the tables are those of this release."""
        from gsaas.db import migration

        try:
            with self._connected() as database:
                current = migration.version(database)
        except LeftToDo:
            return State.MISSING
        if current is None:
            return State.MISSING
        return State.RIGHT if current == migration.head() else State.DIFFERENT

    def make_tables(self) -> None:
        """Make the tables, or upgrade them; raises `LeftToDo`."""
        from gsaas.db import migration, ready

        with self._connected() as database:
            current = migration.version(database)
            if current is not None and not migration.knows(current):
                raise LeftToDo(ready.problem(current) or "")
            if current is not None:
                raise LeftToDo(
                    "the tables are those of another release: see Updating in the operator's guide",
                    ["gsaas-manage db upgrade"],
                )
            migration.upgrade(database)


class Keystone:
    """Keystone."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    def state(self, step: KeystoneEntries) -> State:
        """Return what a token of the service's user says of its roles and of the catalogue."""
        from keystoneauth1.exceptions import CatalogException, ClientException

        from gsaas.checkup import identity

        session = identity.session_of(self._conf, "service_user")
        try:
            if session is None or not {"admin", "service"} <= set(identity.roles_of(session)):
                return State.MISSING
            for interface, url in _endpoints(step).items():
                found = session.get_endpoint(
                    service_type=SERVICE_TYPE,
                    interface=interface,
                    region_name=step.answers.region,
                )
                if found is None:
                    return State.MISSING
                if found.rstrip("/") != url.rstrip("/"):
                    return State.DIFFERENT
        except (ClientException, CatalogException):
            return State.MISSING
        return State.RIGHT

    def make(self, step: KeystoneEntries) -> None:
        """Make or correct the entries, as the administrator of the environment; raises `LeftToDo`."""
        if not {"OS_CLOUD", "OS_AUTH_URL"} & os.environ.keys():
            raise LeftToDo(
                "there are no credentials of an administrator (OS_CLOUD); with them, run this again, or type:",
                _with_password("keystone_password", _keystone_commands(step)),
            )
        import openstack
        from keystoneauth1.exceptions import ClientException
        from openstack.exceptions import SDKException

        try:
            _make_entries(openstack.connect().identity, step)
        except (ClientException, SDKException) as error:
            said = " ".join(str(error).split())
            raise LeftToDo(f"Keystone rejects the request, or does not answer: {said}") from error


def _endpoints(step: KeystoneEntries) -> dict[str, str]:
    return {"public": step.answers.url, "internal": step.answers.internal_url}


def _keystone_commands(step: KeystoneEntries) -> list[str]:
    user, project = texts.ACCOUNT, step.answers.service_project
    create = f"openstack endpoint create --region {step.answers.region} {SERVICE_TYPE}"
    return [
        f"openstack user create --domain default --password PASSWORD {user}",
        *(
            f"openstack role add --project {project} --user {user} {role}"
            for role in ("service", "admin")
        ),
        f'openstack service create --name {user} --description "GPU scheduling" {SERVICE_TYPE}',
        *(f"{create} {interface} {url}" for interface, url in _endpoints(step).items()),
    ]


def _make_entries(identity: Any, step: KeystoneEntries) -> None:
    """Make what is missing with *identity*, the SDK's proxy of an administrator; raises what the SDK raises."""
    domain, name, password = "default", texts.ACCOUNT, step.answers.keystone_password
    user = identity.find_user(name, domain_id=domain)
    if user is None:
        user = identity.create_user(name=name, domain_id=domain, password=password)
    else:
        identity.update_user(user, password=password)
    project = identity.find_project(
        step.answers.service_project, domain_id=domain, ignore_missing=False
    )
    for wanted in ("service", "admin"):
        role = identity.find_role(wanted) or identity.create_role(name=wanted)
        identity.assign_project_role_to_user(project, user, role)
    service = next(identity.services(type=SERVICE_TYPE), None) or identity.create_service(
        name=name, type=SERVICE_TYPE, description="GPU scheduling"
    )
    for interface, url in _endpoints(step).items():
        there = [
            one
            for one in identity.endpoints(service_id=service.id, interface=interface)
            if one.region_id == step.answers.region
        ]
        for one in there:
            identity.update_endpoint(one, url=url)
        if not there:
            identity.create_endpoint(
                service_id=service.id,
                interface=interface,
                region_id=step.answers.region,
                url=url,
            )
