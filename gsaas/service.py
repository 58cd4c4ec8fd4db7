# SPDX-License-Identifier: Apache-2.0
"""Start, signal handling and end of the processes gsaas-engine, gsaas-rodvr and gsaas-monitor.

1. A process starts, or ends with status 1 and one sentence that says what is missing and what to do. It does not wait
   for what is missing, because it would then look as if it worked; a supervisor such as systemd starts it again.
2. Once started, a process survives the loss of the message bus or the database, until they are back.
3. SIGTERM and SIGINT end it in order. SIGHUP makes it read its configuration again and apply what can change while it
   runs, which is the log level. It opens a new log file by itself when the old one was renamed. SIGUSR2 makes it
   print a report (`gsaas.reports`).
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

from oslo_config import cfg
from oslo_log import log
from oslo_service import systemd

from gsaas import conf as gsaas_conf
from gsaas import reports, rpc
from gsaas.objects import host_names

if TYPE_CHECKING:
    from gsaas.db.database import Database

LOG = log.getLogger(__name__)

STOP_TIMEOUT = 10.0
"""Seconds that the parts of a process may take to stop; then the process ends without them."""

ENDS = (signal.SIGTERM, signal.SIGINT)
"""Signals that end a process."""

Start = Callable[[cfg.ConfigOpts, ExitStack], None]
"""Starts the parts of a process, and registers with the stack how to stop them, which it does in reverse order."""


class Unstartable(Exception):
    """The process cannot start; the text says in one sentence why, and what to do."""


def run(
    name: str,
    description: str,
    start: Start,
    argv: Sequence[str] | None = None,
    cli: Sequence[cfg.Opt] = (),
    stop_timeout: float = STOP_TIMEOUT,
) -> int:
    """Run the process *name* until a signal ends it; return the exit status if it could not start.

    It reads `/etc/gsaas/gsaas.conf`, then `/etc/gsaas/<name>.conf`; or the files that *argv* names instead. *cli* are
    options that only the command line has. Parts that have not stopped after *stop_timeout* seconds are left behind.
    """
    try:
        conf = gsaas_conf.load(
            sys.argv[1:] if argv is None else argv, prog=name, description=description, cli=cli
        )
    except (cfg.Error, ValueError) as error:
        return _report_failure(name, f"the configuration cannot be used: {error}")
    log.setup(conf, "gsaas")
    gsaas_conf.warn_of_problems(conf)
    arrived = _arrivals()
    signal.signal(signal.SIGHUP, lambda *_: None)
    for number in ENDS:
        signal.signal(number, lambda *_: sys.exit(0))
    parts = ExitStack()
    try:
        reports.setup(conf, name)
        start(conf, parts)
        systemd.notify_once()
        LOG.info("%s has started", name)
        for arrival in arrived:
            if arrival == signal.SIGHUP:
                _reload(conf)
    except (Unstartable, reports.Unusable) as error:
        return _report_failure(name, str(error))
    except SystemExit:
        _ignore_further_signals()
        LOG.info("%s stops", name)
    finally:
        _stop(parts, stop_timeout)
    return _end_at_once()


def host_name(conf: cfg.ConfigOpts) -> str:
    """Return the name under which an agent reports; raise `Unstartable` for one that the engine would refuse."""
    name = conf.host or socket.gethostname()
    if not host_names.is_valid(name):
        raise Unstartable(
            f"{name!r} is not a host name: {host_names.RULE}; set [DEFAULT]host in the configuration"
        )
    return name


def database(conf: cfg.ConfigOpts) -> Database:
    """Return the configured database, connected; raise `Unstartable` if it lacks this release's tables."""
    # Imported here: agents use this module, have no database, and would take twice as long to start.
    from gsaas.db import migration, ready

    try:
        opened = ready.connect(conf)
    except ready.Unusable as error:
        raise Unstartable(str(error)) from error
    if problem := ready.problem(migration.version(opened)):
        opened.close()
        raise Unstartable(problem)
    return opened


def bus(conf: cfg.ConfigOpts, agent: str | None = None) -> rpc.Bus:
    """Return the configured message bus, connected; raise `Unstartable` if it accepts no messages.

    *agent* is `rpc.MONITOR` or `rpc.RODVR` in a process that is one.
    """
    try:
        connected = rpc.connect(conf, agent=agent)
        rpc.check(connected)
        rpc.prepare_calls(connected)
    except rpc.Misconfigured as error:
        raise Unstartable(str(error)) from error
    except rpc.BusError as error:
        raise Unstartable(
            f"there is no message bus: {error}; start it, or correct transport_url in the configuration"
        ) from error
    return connected


def _arrivals() -> Iterator[int]:
    """Return an iterator over the signals that arrive from now on, which waits for the next one.

    The kernel gives a signal to any thread. Python's handler waits until the main thread goes on, which a signal that
    another thread got does not make it do, unless what the main thread waits for is this file descriptor
    (`signal.set_wakeup_fd`).
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    return (os.read(reader, 1)[0] for _ in itertools.count())


def _reload(conf: cfg.ConfigOpts) -> None:
    """Read the configuration files again; log errors and keep the old values."""
    try:
        conf.mutate_config_files()
    except (cfg.Error, ValueError) as error:
        LOG.error(
            "the configuration cannot be read again, so the old one stays in force: %s", error
        )
    else:
        LOG.info("the configuration was read again")


def _stop(parts: ExitStack, timeout: float) -> None:
    """Stop all parts in reverse order, for at most *timeout* seconds.

    While the message bus is down, its threads sleep for up to half a minute between attempts to connect. Leaving such
    threads behind does no harm: everything that must survive is in the database or in the kernel.
    """
    stopping = threading.Thread(target=parts.close, name="stopping", daemon=True)
    stopping.start()
    stopping.join(timeout)
    if stopping.is_alive():
        LOG.info(
            "not every part has stopped after %g s; the process ends without waiting any longer",
            timeout,
        )


def _end_at_once() -> NoReturn:
    """End the process with status 0, and without the threads for which Python would wait.

    One may be a thread of oslo.messaging that sends an answer: while the message bus is down, it tries without end.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _ignore_further_signals() -> None:
    """Ignore SIGTERM and SIGINT from now on: a second one would interrupt the orderly stop."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)


def _report_failure(name: str, sentence: str) -> int:
    """Print why the process cannot start; return its exit status."""
    LOG.debug("%s cannot start", name, exc_info=True)
    print(f"{name}: {sentence}", file=sys.stderr)  # noqa: T201 (stderr, even if the log is a file)
    return 1
