# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage setup`: one command makes a controller, a compute host or a GPU host."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import getpass
import importlib.metadata
import json
import logging
import os
import secrets
import socket
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from oslo_config import cfg

from gsaas.objects import host_names
from gsaas.setup import answers as asked
from gsaas.setup import machine, plan, texts
from gsaas.setup.answers import BadAnswer, Controller
from gsaas.setup.machine import LeftToDo
from gsaas.setup.run import Done, Outcome, carry_out

EXIT_OK, EXIT_PROBLEM, EXIT_UNKNOWN = 0, 1, 2
STATUSES = """\
Exit status: 0 if all is done, 1 if something is left to do, 2 if an answer is missing or not allowed, or your own
options cannot be used.
"""
WHAT = {
    "controller": "a controller: gsaas-api and gsaas-engine",
    "compute": "a compute host: gsaas-rodvr",
    "gpu-host": "a GPU host: gsaas-monitor",
}
MORE = """\
Make this machine {what}. It writes the configuration, and makes users, units and whatever else the operator's
guide says, each only where it is not so already: run it again after an update, or with another answer. Needs root.
Answers come from the options, then from --answers, then from {kept}, where they are kept; what is still missing is
asked on a terminal. Your own options go into /etc/gsaas/*.conf.d, which it never touches; of a file that it changes it
keeps a copy. What it cannot do here it prints as commands.
"""
HOST = "on a controller: give a host its account and keys, and print its answers"
HOST_MORE = """\
Give HOST an account on the message bus, with the permissions of its roles, and print the answers for
`gsaas-manage setup gpu-host --answers FILE` there. They contain its password and keys: let nobody else read the file.
Needs root, on a controller that setup has made. Run it again at any time: it prints the same.
"""
NEXT = {
    "controller": (
        "Nova's rule and notifications: step 4 of the operator's guide",
        "a proxy with TLS for {listen}, such as haproxy.cfg",
        "for each host, here: gsaas-manage setup answers HOST gpu-host (or compute, or both) >HOST.toml",
        "on each host: gsaas-manage setup gpu-host (or compute) --answers HOST.toml",
        "on other controllers: gsaas-manage setup controller --answers, with a copy of {kept}",
        "then, here: gsaas-manage check",
    ),
    "compute": ("on a controller: gsaas endpoints, which lists this host and its problems",),
    "gpu-host": (
        "the middleware, in its folder: doc/gpu-hosts.md",
        "on a controller: gsaas gpus, which lists the GPUs of this host",
    ),
}


def add_parsers(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands to those of gsaas-manage."""
    setup = nouns.add_parser(
        "setup", help="make a machine: setup controller, compute, gpu-host, answers"
    )
    verbs = setup.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for role, kind in asked.ROLES.items():
        command = verbs.add_parser(
            role,
            help=f"make {WHAT[role]}",
            description=MORE.format(what=WHAT[role], kept=texts.kept(role)),
            epilog=STATUSES,
        )
        for name, question in asked.questions(kind).items():
            if not question.secret:
                command.add_argument(
                    f"--{name.replace('_', '-')}",
                    dest=f"answer_{name}",
                    metavar=name.rpartition("_")[2].upper(),
                    help=question.text,
                )
        command.add_argument(
            "--answers", metavar="FILE", help="a TOML file of answers, with _ for - in their names"
        )
        command.add_argument(
            "--dry-run", action="store_true", help="say what it would do, and change nothing"
        )
        command.add_argument(
            "-f",
            "--format",
            choices=("table", "json"),
            default="table",
            help="lines for people (default), or a JSON list of {step, outcome, more, commands}",
        )
        command.set_defaults(run=functools.partial(set_up, role), configure=_nothing)
    command = verbs.add_parser("answers", help=HOST, description=HOST_MORE)
    command.add_argument("host", metavar="HOST", help="by the name that Nova and its agents use")
    command.add_argument(
        "roles", metavar="ROLE", nargs="+", choices=("compute", "gpu-host"), help="what HOST is"
    )
    command.set_defaults(run=print_answers, configure=_nothing)


def set_up(
    role: str,
    _settings: cfg.ConfigOpts,
    answers: str | None,
    dry_run: bool,
    format: str,
    **options: str | None,
) -> int:
    """Make this machine one of *role*, and print what was done. Returns the exit status."""
    kind = asked.ROLES[role]
    if os.geteuid() != 0:
        return _fail("this needs root")
    try:
        given = _kept(role) | _answered(role, Path(answers) if answers else None)
        for name, value in options.items():
            if value is not None:
                given[name.removeprefix("answer_")] = value
        if sys.stdin.isatty():
            given |= _ask(asked.missing(kind, given))
        known: Any = asked.read(
            cast("type[Controller]", kind), given, socket.gethostname(), _new_secret
        )
        _check_driver(known)
    except BadAnswer as error:
        return _fail(str(error))
    steps = plan.steps(role, known, machine.samples(Path(sys.prefix)), sys.prefix)
    for step in steps:
        if isinstance(step, machine.File) and step.is_somebody_elses():
            return _fail(
                f"{step.path} is there, and setup has not written it: move your own options into {step.path}.d/, or "
                "all of it, which then counts before setup's; nothing was changed"
            )
    logging.disable()  # the lines contain what libraries would log about a failure
    done: list[Done] = []
    for one in carry_out(steps, dry_run=dry_run):
        done.append(one)
        if format == "table":
            _print_step(one)
    if format == "json":
        print(json.dumps([dataclasses.asdict(one) for one in done], indent=2))
    left = any(one.outcome is Outcome.LEFT for one in done)
    if format == "table" and not dry_run:
        listen = known.listen if isinstance(known, Controller) else ""
        print("\nSomething is left to do, see above. Then:" if left else "\nNext:")
        for line in NEXT[role]:
            print(f"  {line.format(listen=listen, kept=texts.kept(role))}")
    return EXIT_PROBLEM if left else EXIT_OK


def print_answers(_settings: cfg.ConfigOpts, host: str, roles: Sequence[str]) -> int:
    """Give *host* its account, and print its answers. Returns the exit status."""
    from gsaas.setup import hosts

    if not host_names.is_valid(host):
        return _fail(f"{host!r} is not a host name: {host_names.RULE}")
    try:
        given = _kept("controller")
        if not given:
            return _fail(
                f"there is no {texts.kept('controller')} that root may read: run gsaas-manage setup controller first"
            )
        controller = asked.read(Controller, given, socket.gethostname(), _new_secret)
    except BadAnswer as error:
        return _fail(f"{texts.kept('controller')}: {error}")
    print(hosts.answers(controller, host, roles), end="")
    try:
        hosts.have_account(controller, host, roles)
    except LeftToDo as error:
        print(f"gsaas-manage: {error}", *error.commands, sep="\n  ", file=sys.stderr)
        return EXIT_PROBLEM
    return EXIT_OK


def _nothing(_config_file: str | None) -> cfg.ConfigOpts:
    """Return no configuration: this command writes it."""
    return cfg.ConfigOpts()


def _kept(role: str) -> dict[str, str]:
    """Return the answers that an earlier run has kept."""
    path = Path(texts.kept(role))
    return _answered(role, path) if os.access(path, os.R_OK) else {}


def _answered(role: str, path: Path | None) -> dict[str, str]:
    """Return the answers for *role* in a file; raises `BadAnswer` if it cannot be read."""
    if path is None:
        return {}
    try:
        return asked.of_role(role, tomllib.loads(path.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise BadAnswer(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadAnswer(f"{path} is not TOML: {error}") from error
    except BadAnswer as error:
        raise BadAnswer(f"{path}: {error}") from error


def _ask(questions: dict[str, asked.Question]) -> dict[str, str]:
    """Ask on the terminal what is missing."""
    found = {}
    for name, question in questions.items():
        prompt = f"{name}: {question.text}; {question.allowed}\n> "
        try:
            found[name] = getpass.getpass(prompt) if question.secret else input(prompt)
        except EOFError as error:
            raise BadAnswer(f"{name} is not answered") from error
    return found


def _check_driver(known: Any) -> None:
    """Raise `BadAnswer` for a middleware that is not installed."""
    names = sorted(importlib.metadata.entry_points(group="gsaas.remoting").names)
    driver = getattr(known, "driver", None)
    if driver is not None and driver not in names:
        raise BadAnswer(f"driver is one of {', '.join(names)}, not {driver!r}")


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


def _print_step(one: Done) -> None:
    """Print it without delay, because the next may take long."""
    print(f"{one.outcome:<12} {one.step}")
    if one.more:
        print(f"{'':<12} {one.more}")
    for command in one.commands:
        print(f"{'':<16} {command}")
    sys.stdout.flush()


def _fail(sentence: str) -> int:
    print(f"gsaas-manage: {sentence}", file=sys.stderr)
    return EXIT_UNKNOWN
