# SPDX-License-Identifier: Apache-2.0
"""The programs that have a manual page and completion. A program of setup.cfg that is missing here fails a test."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from oslo_config import cfg

from generate import of_argparse, of_gsaas
from generate.commands import Command, Program, sentence
from gsaas.cli import engine, manage, monitor, rodvr, sim, standalone, status

SERVICE_EXIT = """\
0 after a signal has ended it. 1 if it cannot start: a sentence on standard error says what is missing and what to do.
"""
SIGNALS = """\
SIGTERM and SIGINT end the process in order. SIGHUP makes it read its configuration again and apply what can change
while it runs, which is the log level.
"""


CHECK = "check whether this release can run with the configuration and the database as they are"
CHECK_EXIT = """\
0 if nothing is wrong, 1 if there are warnings, 2 if something has to be done first, 255 if the checks were not made.
"""


@dataclass(frozen=True)
class Distribution:
    """A distribution, the folder of its setup.cfg, and the programs whose pages and completion it installs."""

    folder: str
    programs: tuple[Callable[[], Program], ...]
    completed: tuple[str, ...]
    """The programs with completion: those that people type. A supervisor starts the others."""


def _configuration(name: str) -> tuple[str, str]:
    return "Files", f"  /etc/gsaas/gsaas.conf\n  /etc/gsaas/{name}.conf"


def _service(
    name: str, summary: str, description: str, cli: Sequence[cfg.Opt] = ()
) -> Callable[[], Program]:
    def program() -> Program:
        command = of_argparse.of_service(name, summary, description, cli)
        sections = (("Signals", SIGNALS), _configuration(name), ("Exit status", SERVICE_EXIT))
        return Program(command, 8, sections)

    return program


def _parsed(
    parser: Callable[[], argparse.ArgumentParser],
    section: int,
    summary: str,
    *sections: tuple[str, str],
) -> Callable[[], Program]:
    def program() -> Program:
        choices = {"--policy": of_gsaas.policies()}
        return Program(of_argparse.of_parser(parser(), summary, choices), section, sections)

    return program


def _status() -> Program:
    """Return `gsaas-status`; oslo.upgradecheck declares the command `upgrade check` as `upgrade` with an argument."""
    whole = of_argparse.of_service(
        "gsaas-status",
        "check before an update whether the new release of GSaaS can run",
        status.DESCRIPTION,
        status.commands(status.Checks()),
        ["upgrade", "check"],
    )
    (upgrade,) = whole.commands
    check = replace(
        upgrade,
        name="check",
        summary=CHECK,
        description=sentence(CHECK),
        synopsis=("gsaas-status upgrade check [--json]",),
        arguments=(),
    )
    upgrade = Command("upgrade", "upgrade check", upgrade.synopsis, commands=(check,))
    sections = (_configuration("gsaas-status"), ("Exit status", CHECK_EXIT))
    return Program(replace(whole, commands=(upgrade,)), 8, sections)


SERVER = Distribution(
    ".",
    (
        _parsed(
            sim._parser,
            1,
            "replay requests on a simulated cloud of GPUs, and plan how many GPUs to buy",
        ),
        _parsed(standalone._parser, 1, "run all of GSaaS in one process, with simulated GPUs"),
        _parsed(
            manage._parser,
            8,
            "prepare the database of GSaaS, and check an installation",
            ("Files", "  /etc/gsaas/gsaas.conf"),
        ),
        _status,
        _service(
            "gsaas-engine", "move the leases of GSaaS to their wanted states", engine.DESCRIPTION
        ),
        _service(
            "gsaas-rodvr",
            "connect the VMs of a compute host to their cGPUs",
            rodvr.DESCRIPTION,
            [rodvr.CLEAN],
        ),
        _service(
            "gsaas-monitor",
            "report the GPUs of a host to GSaaS, and run their daemons",
            monitor.DESCRIPTION,
            [monitor.CLEAN],
        ),
    ),
    completed=("gsaas-sim", "gsaas-standalone", "gsaas-manage", "gsaas-status"),
)
CLIENT = Distribution("client", (of_gsaas.program,), completed=("gsaas",))
DISTRIBUTIONS = (CLIENT, SERVER)


def all_programs() -> list[Program]:
    """Return every program, by name."""
    found = [make() for distribution in DISTRIBUTIONS for make in distribution.programs]
    return sorted(found, key=lambda program: program.name)
