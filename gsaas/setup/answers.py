# SPDX-License-Identifier: Apache-2.0
"""What `gsaas-manage setup` has to know of each kind of machine. Pure.

Answers are text without what a configuration file, a URL, SQL or a shell would have to quote. Their names are those of
the command's options and of the keys in a file of answers.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from gsaas.objects import host_names

Known: TypeAlias = Mapping[str, str]
"""The answers so far, and `machine`, the host name of this machine."""
QUESTION = "question"


class BadAnswer(Exception):
    """An answer is missing, not allowed or not asked for; the text names it and says what is allowed."""


@dataclass(frozen=True)
class Question:
    """What to ask, and what may be answered."""

    text: str
    allowed: str
    is_allowed: Callable[[str], bool]
    default: Callable[[Known], str] | None = None
    """What is taken if nobody says; without it, somebody has to."""
    secret: bool = False
    """Whether the answer is a secret, which no command line and no output shows."""


def _matches(pattern: str) -> Callable[[str], bool]:
    return lambda answer: re.fullmatch(pattern, answer) is not None


def _is_address(answer: str) -> bool:
    try:
        return bool(ipaddress.IPv4Address(answer))
    except ValueError:
        return False


def _are_networks(answer: str) -> bool:
    try:
        each = [one.strip() for one in answer.split(",")]
        return all("/" in one and ipaddress.IPv4Network(one) for one in each)
    except ValueError:
        return False


_HOST = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
_UNQUOTED = r"[A-Za-z0-9._~-]{8,}"
URL = "a URL such as https://gpu.example.org", _matches(rf"https?://{_HOST}(:\d+)?(/[\w.~/-]*)?")
BUS = (
    "HOST or HOST:PORT, or several with commas between them",
    _matches(rf"{_HOST}(:\d+)?(,{_HOST}(:\d+)?)*"),
)
DATABASE = (
    "HOST or HOST:PORT of MariaDB or MySQL, or the URL of a database that is there, as [database]connection takes it",
    _matches(rf"{_HOST}(:\d+)?|[a-z0-9+]+://[^\s$]+"),
)
NAME = "a name of letters, digits, dots, hyphens and underscores", _matches(r"[\w.-]+")
HOST = host_names.RULE, host_names.is_valid
PATH = "the absolute path of a file, or nothing", _matches(r"(/[\w./-]+)?")
LISTEN = "ADDRESS:PORT, such as 127.0.0.1:9870", _matches(r"[0-9a-fA-F.:\[\]]+:\d+")
NETWORKS = "IPv4 networks with commas between them, such as 192.0.2.0/24", _are_networks
ADDRESS = "an IPv4 address, such as 192.0.2.11", _is_address
SECRET = "at least 8 letters, digits, dots, hyphens, underscores and tildes", _matches(_UNQUOTED)
SECRETS = f"{SECRET[0]}; several have commas between them", _matches(rf"{_UNQUOTED}(,{_UNQUOTED})*")

_Rule: TypeAlias = tuple[str, Callable[[str], bool]]


def _ask(
    text: str,
    rule: _Rule,
    default: str | Callable[[Known], str] | None = None,
    *,
    secret: bool = False,
) -> Any:
    """Return a field of a dataclass that asks this."""
    given = (lambda _: default) if isinstance(default, str) else default
    return dataclasses.field(metadata={QUESTION: Question(text, *rule, given, secret)})


@dataclass(frozen=True)
class Controller:
    """A machine that runs `gsaas-api` and `gsaas-engine`. Secrets that no answer gives are made."""

    url: str = _ask("where tenants reach the API, at its proxy", URL)
    auth_url: str = _ask("where Keystone is", URL)
    bus: str = _ask("where Nova's RabbitMQ is, as all hosts reach it", BUS)
    gpu_network: str = _ask("the GPU network of all hosts", NETWORKS)
    internal_url: str = _ask(
        "where services reach the API (default: url)", URL, lambda known: known["url"]
    )
    database: str = _ask(
        "where the database is (default: MariaDB on the host of bus)",
        DATABASE,
        lambda known: known["bus"].split(",")[0].split(":")[0],
    )
    region: str = _ask("Keystone's region (default: RegionOne)", NAME, "RegionOne")
    service_project: str = _ask("the project of service users (default: service)", NAME, "service")
    cafile: str = _ask("the certificate authorities of the cloud, if they are its own", PATH, "")
    driver: str = _ask("the middleware (default: rcuda)", NAME, "rcuda")
    listen: str = _ask(
        "where gsaas-api listens for its proxy (default: 127.0.0.1:9870)", LISTEN, "127.0.0.1:9870"
    )
    bus_secret: str = _ask("[bus]secrets of all controllers", SECRETS, secret=True)
    bus_password: str = _ask("of the account gsaas on the message bus", SECRET, secret=True)
    database_password: str = _ask("of the account gsaas of the database", SECRET, secret=True)
    keystone_password: str = _ask("of the user gsaas in Keystone", SECRET, secret=True)


@dataclass(frozen=True)
class _Agent:
    bus: str = _ask("where RabbitMQ is", BUS)
    bus_password: str = _ask("of this host's account on the message bus", SECRET, secret=True)
    host_key: str = _ask("this agent's key, of gsaas-manage setup answers", SECRETS, secret=True)
    host: str = _ask(
        "the name of this host, as Nova has it (default: its host name)",
        HOST,
        lambda known: known["machine"],
    )
    bus_account: str = _ask(
        "this host's account on the message bus (default: gsaas-HOST)",
        NAME,
        lambda known: f"gsaas-{known['host']}",
    )


@dataclass(frozen=True)
class Compute(_Agent):
    """A compute host, which runs `gsaas-rodvr`."""

    gpu_network: str = _ask("the GPU network of all hosts", NETWORKS)
    gpu_device: str = _ask("the interface on the GPU network (default: gpu0)", NAME, "gpu0")


@dataclass(frozen=True)
class GpuHost(_Agent):
    """A GPU host, which runs `gsaas-monitor`."""

    gpu_address: str = _ask("the address of this host on the GPU network", ADDRESS)
    driver: str = _ask("the middleware (default: rcuda)", NAME, "rcuda")


ROLES: Mapping[str, type[Controller | Compute | GpuHost]] = {
    "controller": Controller,
    "compute": Compute,
    "gpu-host": GpuHost,
}
"""Role, as the command line and files of answers name it -> what it has to know."""
Answers = TypeVar("Answers", Controller, Compute, GpuHost)


def questions(kind: type[Any]) -> dict[str, Question]:
    """Return the questions of *kind*, one of `ROLES`, by the names of the answers."""
    return {field.name: field.metadata[QUESTION] for field in dataclasses.fields(kind)}


def of_role(role: str, table: Mapping[str, Any]) -> dict[str, str]:
    """Return the answers for *role* in *table*, a file of answers: those for all roles, and those in its own table.

    A list of text is text with commas. Raises `BadAnswer` for what no role is asked, and for what is no text.
    """
    asked = {name for kind in ROLES.values() for name in questions(kind)}
    own = questions(ROLES[role])
    found: dict[str, str] = {}
    for place, answers in (("", table), (f" in [{role}]", table.get(role, {}))):
        if not isinstance(answers, Mapping):
            raise BadAnswer(f"[{role}] is a table of the answers for it alone")
        for name, value in answers.items():
            if name in ROLES and not place:
                continue
            if name not in (own if place else asked):
                raise BadAnswer(f"there is no answer {name!r}{place}; there are {', '.join(own)}")
            texts = value if isinstance(value, list) else [value]
            if not all(isinstance(text, str) for text in texts):
                raise BadAnswer(f"{name}{place} must be text in quotation marks")
            if name in own:
                found[name] = ",".join(texts)
    return found


def missing(kind: type[Any], given: Known) -> dict[str, Question]:
    """Return what is asked for *kind*, not among *given*, and neither has a default nor can be made."""
    return {
        name: question
        for name, question in questions(kind).items()
        if name not in given and question.default is None and not _is_made(kind, question)
    }


def read(kind: type[Answers], given: Known, machine: str, new_secret: Callable[[], str]) -> Answers:
    """Return the answers *given* for *kind*, with defaults and new secrets for the others; raise `BadAnswer`.

    *machine* is the host name of this machine.
    """
    if lacking := missing(kind, given):
        said = (f"{name} ({question.text})" for name, question in lacking.items())
        raise BadAnswer(f"not answered: {'; '.join(said)}")
    known = {"machine": machine}
    for name, question in questions(kind).items():
        answer = given.get(name)
        if answer is None:
            answer = question.default(known) if question.default else new_secret()
        answer = answer.strip()
        if not question.is_allowed(answer):
            # The URL of a database has a password before the @.
            shown = "what was given" if question.secret or "@" in answer else repr(answer)
            raise BadAnswer(f"{name} is {question.allowed}, not {shown}")
        known[name] = answer
    return kind(**{name: known[name] for name in questions(kind)})


def _is_made(kind: type[Any], question: Question) -> bool:
    """Whether setup makes the secret itself; agents get theirs from a controller."""
    return question.secret and kind is Controller


def written(answers: Mapping[str, str | Mapping[str, str]]) -> Iterator[str]:
    """Yield the lines of a file of *answers*, with tables last."""
    tables = {name: one for name, one in answers.items() if not isinstance(one, str)}
    for name, answer in answers.items():
        if name not in tables:
            yield f"{name} = {json.dumps(answer)}"
    for role, own in tables.items():
        yield f"\n[{role}]"
        yield from written(own)
