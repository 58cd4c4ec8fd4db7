"""The life of gsaas-engine, gsaas-rodvr and gsaas-monitor as processes.

1. Start, or end with status 1 and one sentence that says what is missing and what to do. Waiting for what is
   missing would look like working; a supervisor such as systemd tries again.
2. Once started, survive: a message bus or a database that goes away comes back.
3. SIGTERM and SIGINT end it in order. SIGHUP makes it read its configuration again and take over what can change
   while it runs, which is the level of its log. A log file that was moved away is made anew by itself.
"""

from __future__ import annotations

import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from oslo_config import cfg
from oslo_log import log
from oslo_service import systemd

from gsaas import conf as gsaas_conf
from gsaas import rpc
from gsaas.objects import host_names

if TYPE_CHECKING:
    from gsaas.db.database import Database

LOG = log.getLogger(__name__)

STOP_PATIENCE = 10.0
"""Seconds."""

Start = Callable[[cfg.ConfigOpts, ExitStack], None]
"""Makes and starts the parts of a process, and leaves with the stack how to stop them, last things first."""


class Unstartable(Exception):
    """The process cannot start; the message says why in one sentence, and what to do."""


def run(
    name: str,
    description: str,
    start: Start,
    argv: Sequence[str] | None = None,
    cli: Sequence[cfg.Opt] = (),
) -> int:
    """Be the process *name* until a signal ends it; return its exit status.

    `/etc/gsaas/gsaas.conf` is read, then `/etc/gsaas/<name>.conf`, or what *argv* names instead. *cli* are
    options for the command line alone.
    """
    try:
        conf = gsaas_conf.load(
            sys.argv[1:] if argv is None else argv, prog=name, description=description, cli=cli
        )
    except (cfg.Error, ValueError) as error:
        return _refuse(name, f"the configuration cannot be used: {error}")
    log.setup(conf, "gsaas")
    hangups: queue.SimpleQueue[int] = queue.SimpleQueue()
    signal.signal(signal.SIGHUP, lambda number, _: hangups.put(number))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    parts = ExitStack()
    try:
        start(conf, parts)
        systemd.notify_once()
        LOG.info("%s has started", name)
        while hangups.get():
            _reload(conf)
    except Unstartable as error:
        return _refuse(name, str(error))
    except SystemExit:
        _refuse_to_hurry()
        LOG.info("%s stops", name)
    finally:
        _stop(parts)
    return 0


def host_name(conf: cfg.ConfigOpts) -> str:
    """The name that an agent reports under; raises `Unstartable` for one that the engine would not take."""
    name = conf.host or socket.gethostname()
    if not host_names.is_valid(name):
        raise Unstartable(
            f"{name!r} is no host name: {host_names.RULE}; see [DEFAULT]host in the configuration"
        )
    return name


def database(conf: cfg.ConfigOpts) -> Database:
    """Connect to a database that has this release's tables; raises `Unstartable`."""
    from gsaas.db import migration, ready  # half of what an agent would load, and it needs none

    try:
        opened = ready.connect(conf)
    except ready.Unusable as error:
        raise Unstartable(str(error)) from error
    if problem := ready.problem(migration.version(opened)):
        opened.close()
        raise Unstartable(problem)
    return opened


def bus(conf: cfg.ConfigOpts) -> rpc.Bus:
    """Connect to a message bus that takes messages; raises `Unstartable`."""
    try:
        connected = rpc.connect(conf)
        rpc.check(connected)
    except rpc.BusError as error:
        raise Unstartable(
            f"there is no message bus: {error}; see transport_url in the configuration"
        ) from error
    return connected


def _reload(conf: cfg.ConfigOpts) -> None:
    try:
        conf.mutate_config_files()
    except (cfg.Error, ValueError) as error:
        LOG.error("the configuration stays as it was: %s", error)
    else:
        LOG.info("the configuration was read again")


def _stop(parts: ExitStack) -> None:
    """Stop everything in order, for as long as we have patience.

    A message bus that is down keeps its threads in pauses of up to half a minute. Whoever is left behind there can
    do no harm: what must survive is in the database or in the kernel.
    """
    stopping = threading.Thread(target=parts.close, name="stopping", daemon=True)
    stopping.start()
    stopping.join(STOP_PATIENCE)
    if stopping.is_alive():
        LOG.warning(
            "not everything has stopped after %g s; it ends with the process", STOP_PATIENCE
        )


def _refuse_to_hurry() -> None:
    """Whoever asked to stop has to wait: a second signal would cut the stopping short."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _refuse(name: str, sentence: str) -> int:
    LOG.debug("%s cannot start", name, exc_info=True)
    print(f"{name}: {sentence}", file=sys.stderr)  # noqa: T201 (also when the log goes elsewhere)
    return 1
