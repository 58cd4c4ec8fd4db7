# SPDX-License-Identifier: Apache-2.0
"""`gsaas-standalone`: the whole service in one process, for a first look and for tests."""

from __future__ import annotations

import argparse
import gc
import ipaddress
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg

END_MARGIN = 10.0
"""Seconds for the end of daemons."""
LONG_POLLS = 512
"""The default of [queue]long_polls here: one process serves all waiting clients, and a waiting thread is cheap."""
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
"""The required capabilities -> their numbers: capabilities(7)."""

EPILOG = """\
It simulates a small cloud: hosts and VMs are network namespaces of this machine, GPUs are simulated, and nothing
is made outside of these namespaces. VMs go on running when it stops, and the next start takes them over:

  gsaas-standalone &                     start, and wait for the line that begins with "ready:"
  gsaas -l -ncgpus=2                     in another shell: a VM with two cGPUs
  gsaas-standalone --clean               remove everything it ever made
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run gsaas-standalone until a signal ends it; return its exit status."""
    args = _parser().parse_args(arguments)
    os.umask(0o077)  # tokens and the database are its user's alone
    try:
        _set_up_logging(args.log_file, args.debug)
    except OSError as error:
        return _fail(f"cannot write the log {args.log_file}: {error.strerror}")
    if missing := _missing_capabilities():
        return _fail(
            f"making network namespaces and programming their routes needs {' and '.join(missing)}: "
            "run it as root"
        )
    try:
        return _clean(args) if args.clean else _run(args)
    except _CannotRunError as error:
        return _fail(str(error))


class _CannotRunError(Exception):
    """The text is one sentence for the user: what is wrong and what to do."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gsaas-standalone",
        description="GPU scheduling as a service in one process: no OpenStack, no GPU needed.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--state-dir", metavar="FOLDER", help="where everything is recorded (/run/gsaas)"
    )
    parser.add_argument("--inventory", metavar="FILE", help="TOML: the hosts and GPUs to simulate")
    parser.add_argument(
        "--listen",
        type=_address,
        metavar="IP:PORT",
        help="where the API answers (127.0.0.1:9870); port 0 takes a free one",
    )
    parser.add_argument("--prefix", help="beginning of every namespace's name (gsaas-)")
    parser.add_argument("--config-file", action="append", default=[], metavar="FILE")
    parser.add_argument("--log-file", metavar="FILE", help="instead of stderr")
    parser.add_argument("--debug", action="store_true", help="log every step")
    parser.add_argument(
        "--clean", action="store_true", help="remove everything that was ever made, and exit"
    )
    return parser


def _address(text: str) -> str:
    """Return *text* if it is an IPv4 address and a port; raise `ArgumentTypeError` otherwise."""
    ip, _, port = text.rpartition(":")
    try:
        ipaddress.IPv4Address(ip)
        if not 0 <= int(port) < 65536:
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not an IPv4 address and port") from None
    return text


def _set_up_logging(file: str | None, debug: bool) -> None:
    logging.basicConfig(
        filename=file,
        level=logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("gsaas").setLevel(logging.DEBUG if debug else logging.INFO)


def _missing_capabilities() -> list[str]:
    """Return the names of the required capabilities that this process lacks."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    effective = int(line.split()[1], 16)
    return [name for name, bit in CAPABILITIES.items() if not effective >> bit & 1]


def _configure(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Return the configuration of the files and the command line; raise `_CannotRunError` if it cannot be used."""
    from gsaas import conf as gsaas_conf

    try:
        conf = gsaas_conf.load(files=args.config_file)
        for option in ("state_dir", "inventory", "listen", "prefix"):
            if (value := getattr(args, option)) is not None:
                conf.set_override(option, value, "standalone")
    except (cfg.Error, ValueError) as error:
        raise _CannotRunError(str(error)) from None
    for problem in gsaas_conf.problems(conf):
        print(f"gsaas-standalone: warning: {problem}", file=sys.stderr)
    conf.set_default("driver", "simulated", "remoting")
    conf.set_default("long_polls", LONG_POLLS, "queue")
    return conf


def _clean(args: argparse.Namespace) -> int:
    from gsaas.gpu_host.daemons import process_runner
    from gsaas.standalone.state_dir import AlreadyRunning, StateDir

    conf = _configure(args)
    state = StateDir(Path(conf.standalone.state_dir))
    try:
        if state.namespaces():
            state.lock()
            if not process_runner.end_all(state.namespaces(), END_MARGIN):
                raise _CannotRunError("a daemon does not end; ps -ef | grep gsaas-daemon shows it")
            state.unlock()
        state.clean()
    except AlreadyRunning as error:
        raise _CannotRunError(f"{error}; stop it first") from None
    return 0


def _run(args: argparse.Namespace) -> int:
    gc.disable()  # importing modules makes many objects and no garbage: collecting takes a tenth of the startup time
    from gsaas.api.auth import TokenFileError
    from gsaas.db import engines
    from gsaas.gpu_host.inventory import InventoryError
    from gsaas.standalone.namespaces import ForeignNamespace
    from gsaas.standalone.service import CannotListen, DaemonsUnusable, Standalone
    from gsaas.standalone.state_dir import AlreadyRunning, StateDir, StateDirUnusable

    conf = _configure(args)
    gc.freeze()  # imported modules are never garbage, so later collections need not visit them
    gc.enable()
    state = StateDir(Path(conf.standalone.state_dir))
    # From here on SIGTERM interrupts this thread anywhere; that is safe, as everything is recorded before it is made.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        state.lock()
        engines.section(conf)  # registers its options
        conf.set_default("connection", state.database_url, "database")
        try:
            service = Standalone(conf, state)
        except ValueError as error:  # a driver or policy that is not installed
            raise _CannotRunError(f"the configuration cannot be used: {error}") from None
        try:
            url = service.start()
            print(f"ready: {url} (credentials: {state.path}/credentials.json)", flush=True)
            service.serve()
            if service.failure is not None:
                raise _CannotRunError(service.failure)
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                # A second signal must not interrupt the orderly stop.
                signal.signal(number, signal.SIG_IGN)
            service.stop()
    except AlreadyRunning as error:
        raise _CannotRunError(f"{error}; stop it, or name another --state-dir") from None
    except (
        CannotListen,
        DaemonsUnusable,
        InventoryError,
        ForeignNamespace,
        TokenFileError,
        StateDirUnusable,
    ) as error:
        raise _CannotRunError(str(error)) from None
    except KeyboardInterrupt:
        pass
    return 0


def _fail(message: str) -> int:
    """Print *message* to stderr and return the exit status of a failure."""
    print(f"gsaas-standalone: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
