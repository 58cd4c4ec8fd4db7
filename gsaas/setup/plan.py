# SPDX-License-Identifier: Apache-2.0
"""The steps that make a controller, a compute host or a GPU host, in their order. Pure.

Each is a value that says how something has to be, so that whoever carries it out can see whether it is so already.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gsaas.setup import texts
from gsaas.setup.answers import Compute, Controller, GpuHost, written

ETC = "/etc/gsaas"
UNITS = "/etc/systemd/system"
POLKIT = "/etc/polkit-1/rules.d"
SHIPPED = "/opt/gsaas"
"""Where units and samples expect the programs."""


@dataclass(frozen=True)
class User:
    """A user of the system without a home, and a group of its name."""

    name: str

    @property
    def said(self) -> str:
        return f"the user and the group {self.name}"


@dataclass(frozen=True)
class Folder:
    """A folder that root and *group* may enter."""

    path: str
    group: str

    @property
    def said(self) -> str:
        return f"{self.path}, for root and the group {self.group}"


@dataclass(frozen=True)
class File:
    """A file of root's. One that begins with `texts.MARK` replaces none that does not."""

    path: str
    text: str
    mode: int = 0o644
    group: str = "root"

    @property
    def said(self) -> str:
        return f"{self.path}, mode {self.mode:04o}, of root and the group {self.group}"


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    path: str
    target: str

    @property
    def said(self) -> str:
        return f"{self.path}, a link to {self.target}"


@dataclass(frozen=True)
class BusAccount:
    """The account of controllers on RabbitMQ, and the virtual host of GSaaS."""

    password: str

    @property
    def said(self) -> str:
        return f"RabbitMQ: the virtual host {texts.VIRTUAL_HOST} and the account {texts.ACCOUNT}"


@dataclass(frozen=True)
class DatabaseAccount:
    """The database, and an account that may do everything in it; *password* is None where others keep them."""

    password: str | None

    @property
    def said(self) -> str:
        return "the database and its account" if self.password else "the database, as you named it"


@dataclass(frozen=True)
class Tables:
    """The tables of this release."""

    said = "the tables of this release (gsaas-manage db upgrade)"


@dataclass(frozen=True)
class KeystoneEntries:
    """User, roles, service and endpoints in Keystone."""

    answers: Controller

    @property
    def said(self) -> str:
        return f"Keystone: the user {texts.ACCOUNT}, its roles, the service gpu-scheduling and its endpoints"


@dataclass(frozen=True)
class Unit:
    """A unit that runs, and starts with the machine; again if one of the files that it *reads* has changed."""

    name: str
    reads: tuple[str, ...]

    @property
    def said(self) -> str:
        return f"{self.name}, enabled and started"


Step: TypeAlias = (
    User | Folder | File | Link | BusAccount | DatabaseAccount | Tables | KeystoneEntries | Unit
)


def kept(role: str) -> str:
    """Return the path of the file in which the answers for *role* are kept, secrets included."""
    return f"{ETC}/setup-{role}.toml"


def steps(
    role: str, answers: Controller | Compute | GpuHost, samples: Mapping[str, str], prefix: str
) -> list[Step]:
    """Return what makes a machine of *role*.

    *samples* are the texts of etc/gsaas, by their path below it; *prefix* is the folder of the programs.
    """
    here = {path: text.replace(SHIPPED, prefix) for path, text in samples.items()}
    head = f"# What gsaas-manage setup {role} has been told, or has made up; it reads this first.\n"
    lines = "\n".join(written(dataclasses.asdict(answers)))
    begin: list[Step] = [
        User("gsaas"),
        Folder(ETC, "gsaas"),
        File(kept(role), f"{head}{lines}\n", 0o600),
    ]
    match answers:
        case Controller():
            return begin + _of_controller(answers, here, prefix)
        case Compute():
            return begin + _of_compute(answers, here)
        case GpuHost():
            return begin + _of_gpu_host(answers, here)


def _of_controller(answers: Controller, samples: Mapping[str, str], prefix: str) -> list[Step]:
    settings = File(f"{ETC}/gsaas.conf", texts.of_controller(answers), 0o640, "gsaas")
    # What is shipped is this address; only the line that sets it has it with an equals sign.
    wsgi = samples["gsaas-api-uwsgi.ini"].replace(
        "http-socket = 127.0.0.1:9870", f"http-socket = {answers.listen}"
    )
    server = File(f"{ETC}/gsaas-api-uwsgi.ini", wsgi)
    names = (
        "gsaas-api.service",
        "gsaas-engine.service",
        "gsaas-purge.service",
        "gsaas-purge.timer",
    )
    units = {name: File(f"{UNITS}/{name}", samples[f"systemd/{name}"]) for name in names}
    api, engine, timer = (
        units[name] for name in ("gsaas-api.service", "gsaas-engine.service", "gsaas-purge.timer")
    )
    others = "://" in answers.database
    return [
        settings,
        Folder(f"{settings.path}.d", "gsaas"),
        server,
        *units.values(),
        *(
            Link(f"/usr/local/bin/{name}", f"{prefix}/bin/{name}")
            for name in ("gsaas", "gsaas-manage")
        ),
        BusAccount(answers.bus_password),
        DatabaseAccount(None if others else answers.database_password),
        Tables(),
        KeystoneEntries(answers),
        Unit("gsaas-api", (settings.path, server.path, api.path)),
        Unit("gsaas-engine", (settings.path, engine.path)),
        Unit("gsaas-purge.timer", (timer.path,)),
    ]


def _of_compute(answers: Compute, samples: Mapping[str, str]) -> list[Step]:
    return _of_agent("gsaas-rodvr", texts.of_compute(answers), "gsaas", samples)


def _of_gpu_host(answers: GpuHost, samples: Mapping[str, str]) -> list[Step]:
    rule = File(f"{POLKIT}/gsaas-monitor.rules", samples["polkit/gsaas-monitor.rules"])
    user = "gsaas-monitor"
    return [User(user), rule, *_of_agent(user, texts.of_gpu_host(answers), user, samples)]


def _of_agent(name: str, text: str, group: str, samples: Mapping[str, str]) -> list[Step]:
    settings = File(f"{ETC}/{name}.conf", text, 0o640, group)
    own = Folder(f"{settings.path}.d", group)
    # These alone: where a controller is, gsaas.conf has secrets that an agent must not have.
    command = f"/bin/{name}"
    reads = f"{command} --config-file {settings.path} --config-dir {own.path}"
    shipped = samples[f"systemd/{name}.service"]
    unit = File(f"{UNITS}/{name}.service", shipped.replace(f"{command}\n", f"{reads}\n"))
    return [settings, own, unit, Unit(name, (settings.path, unit.path))]
