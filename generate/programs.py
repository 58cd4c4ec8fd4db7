"""The programs that have a manual page and completion. A program of setup.cfg that is missing here fails a test."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oslo_config import cfg

from generate import of_argparse, of_gsaas
from generate.commands import Program
from gsaas.cli import engine, manage, monitor, rodvr, sim, standalone

SERVICE_EXIT = """\
0 after a signal has ended it. 1 if it cannot start: a sentence on standard error says what is missing and what to do.
"""
SIGNALS = """\
SIGTERM and SIGINT end the process in order. SIGHUP makes it read its configuration again and apply what can change
while it runs, which is the log level.
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
        _service("gsaas-engine", "drive the leases of GSaaS", engine.DESCRIPTION),
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
    completed=("gsaas-sim", "gsaas-standalone", "gsaas-manage"),
)
CLIENT = Distribution("client", (of_gsaas.program,), completed=("gsaas",))
DISTRIBUTIONS = (CLIENT, SERVER)


def all_programs() -> list[Program]:
    """Return every program, by name."""
    found = [make() for distribution in DISTRIBUTIONS for make in distribution.programs]
    return sorted(found, key=lambda program: program.name)
