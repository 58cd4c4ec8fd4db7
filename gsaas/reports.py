# SPDX-License-Identifier: Apache-2.0
"""Guru Meditation Reports: what a process does at this moment, printed to its stderr on demand.

A report contains the stacks of all threads, the configuration without secrets, the versions of the libraries, and a
section of each process about its own work. SIGUSR2 asks for one or, if `[oslo_reports]file_event_handler` names a file,
a change of that file. `[oslo_reports]log_dir` has reports written to files.

A report has to be possible when the process hangs. So a section takes no lock that a thread may hold for long.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from oslo_config import cfg
from oslo_reports import guru_meditation_report as guru
from oslo_reports import opts
from oslo_reports.generators import conf as conf_generator
from oslo_reports.models.with_default_views import ModelWithDefaultViews

from gsaas import version

State = Callable[[], Mapping[str, Any]]
"""Returns what a section shows: keys with texts, numbers, or lists and mappings of these."""


class Unusable(ValueError):
    """`[oslo_reports]` cannot be used; the message says why."""


class _Version:
    """What oslo.reports asks of a version."""

    def __init__(self, product: str) -> None:
        self._product = product

    def vendor_string(self) -> str:
        return "GSaaS"

    def product_string(self) -> str:
        return self._product

    def version_string_with_package(self) -> str:
        return version.RELEASE


class _Report(guru.TextGuruMeditation):
    """The report of this process, without green threads: the library would search the whole heap for them."""

    conf: ClassVar[cfg.ConfigOpts]
    persistent_sections: ClassVar[list[tuple[str, Callable[[], ModelWithDefaultViews]]]] = []

    def add_section(self, heading: Any, generator: Any, index: int | None = None) -> None:
        """Add a section; the one about the configuration reads that of this process, not oslo.config's global one."""
        if heading == "Green Threads":
            return
        if isinstance(generator, conf_generator.ConfigReportGenerator):
            generator = conf_generator.ConfigReportGenerator(self.conf)
        super().add_section(heading, generator, index)


def setup(conf: cfg.ConfigOpts, process: str) -> None:
    """Have this process report on SIGUSR2 or, if one is configured, when a file changes. In the main thread only.

    Raises `Unusable` if that file does not exist.
    """
    prepare(conf)
    _Report.setup_autorun(_Version(process), service_name=process, conf=conf)


def prepare(conf: cfg.ConfigOpts) -> None:
    """Prepare the reports of a process whose signals belong to a WSGI server; each worker calls `watch` afterwards.

    Raises `Unusable` if `[oslo_reports]file_event_handler` names a file that does not exist.
    """
    opts.set_defaults(conf)
    watched = conf.oslo_reports.file_event_handler
    if watched and not Path(watched).exists():
        raise Unusable(f"[oslo_reports]file_event_handler: there is no file {watched}; create it")
    _Report.conf = conf
    _Report.persistent_sections = []
    add_section("Versions", _versions)


def watch(conf: cfg.ConfigOpts, process: str) -> None:
    """Report when the configured file changes, and never on a signal."""
    _Report.setup_autorun(_Version(process), service_name=process, conf=conf, setup_signal=False)


def add_section(title: str, state: State) -> None:
    """Add a section to this process's reports: what *state* returns when a report is made."""
    _Report.register_section(title, lambda: ModelWithDefaultViews(data=dict(state())))


def _versions() -> dict[str, str]:
    """Return the releases of Python, of the kernel, and of every library that GSaaS names and that is installed."""
    found = {"python": platform.python_version(), "kernel": os.uname().release}
    for requirement in metadata.requires("gsaas") or ():
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
