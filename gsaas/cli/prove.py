# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage prove`: the acceptance test of a GPU host, and of the path from a compute host to it."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from oslo_config import cfg

from gsaas import conf as gsaas_conf
from gsaas import version
from gsaas.exceptions import GsaasError
from gsaas.prove import report, verdicts
from gsaas.prove.verdicts import Gpu, Line

if TYPE_CHECKING:
    from gsaas.prove.jobs import Proof

EXIT_OK, EXIT_PROBLEM, EXIT_UNKNOWN = 0, 1, 2
GPU_HOST = "run on a GPU host: driver, GPUs, limits, a daemon, a CUDA program, and their end"
GPU_HOST_MORE = """\
Check a GPU host before tenants come. It starts daemons and CUDA programs like those of tenants, with the same limits
and isolation, on every GPU; nothing else should use the GPUs meanwhile. It takes about half a minute for each GPU, and
changes nothing that stays. Needs root, and what gsaas[monitor] installs. Reads gsaas.conf and gsaas-monitor.conf.
"""
LIMITS = "run on a GPU host: how far a program gets beyond its share of a device"
LIMITS_MORE = """\
Try the limits of a GPU host, with each of the ways that it has. On every device, a program goes beyond its share while
another one, with a share of the same device, computes. It is a part of gpu-host, and needs the same.
"""
PATH = "from a consumer's host through a lease to a GPU"
PATH_MORE = """\
Check the whole way: on HOST it takes leases of one cGPU with `gsaas run`, and runs a CUDA program with them. HOST is
reached with ssh unless it is this one, and needs the command gsaas with credentials, python3, and the client libraries
of the middleware.
"""
SHARE_MB = 1024
FAKE_UUID = "GPU-00000000-0000-4000-8000-000000000000"
FAKE_SOURCE = Path(__file__).parents[2] / "tests/support/cuda/fake_cuda.c"
"""In a clone of the repository."""


def add_parsers(nouns: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands to those of gsaas-manage."""
    prove = nouns.add_parser(
        "prove", help="an acceptance test: prove gpu-host, prove limits, prove path"
    )
    verbs = prove.add_subparsers(title="commands", metavar="COMMAND", required=True)
    host = verbs.add_parser("gpu-host", help=GPU_HOST, description=GPU_HOST_MORE)
    host.set_defaults(run=functools.partial(of_this_host, "gpu-host"), configure=_of_the_monitor)
    limits = verbs.add_parser("limits", help=LIMITS, description=LIMITS_MORE)
    limits.set_defaults(run=functools.partial(of_this_host, "limits"), configure=_of_the_monitor)
    for command in (host, limits):
        command.add_argument(
            "--gpu", action="append", metavar="UUID", help="only this GPU; may be given again"
        )
        command.add_argument(
            "--fake",
            nargs="?",
            const="",
            metavar="FOLDER",
            help="without a GPU: use the CUDA library in FOLDER, or the fake driver of the tests in a clone of the "
            "repository, and start plain processes instead of units",
        )
        command.add_argument(
            "--plain",
            action="store_true",
            help="start plain processes instead of units, without systemd: the isolation of daemons is not tested",
        )
    path = verbs.add_parser("path", help=PATH, description=PATH_MORE)
    path.add_argument(
        "--from", dest="host", metavar="HOST", required=True, help="where programs run"
    )
    path.add_argument(
        "--gpu-address",
        metavar="IP",
        help="a GPU host on the GPU network, to check the MTU up to it",
    )
    path.add_argument(
        "--native", metavar="FILE", help="what prove gpu-host --json wrote there, to compare with"
    )
    path.add_argument(
        "--gsaas", metavar="COMMAND", default="gsaas", help="the command on HOST (default: gsaas)"
    )
    path.set_defaults(run=path_from)
    for command in (host, limits, path):
        command.add_argument(
            "--share", metavar="MIB", type=_mib, default=SHARE_MB, help="MiB of the cGPU (1024)"
        )
        command.add_argument("--json", metavar="FILE", help="write everything to FILE as JSON, too")


def of_this_host(
    name: str,
    conf: cfg.ConfigOpts,
    gpu: list[str] | None,
    fake: str | None,
    plain: bool,
    share: int,
    json: str | None,
) -> int:
    """Make the proof *name*, `gpu-host` or `limits`, of this host, and print the results. Returns the exit status."""
    from gsaas.prove import gpu_host, limits

    measure = {"gpu-host": gpu_host.lines, "limits": limits.lines}[name]
    facts = {"proof": name, "fake": fake is not None, "plain": plain}
    with contextlib.ExitStack() as cleanup:
        logging.disable()  # the lines contain what libraries would log about a failure
        cleanup.callback(logging.disable, logging.NOTSET)
        try:
            proof = (
                _fake(conf, fake, share, cleanup) if fake is not None else _real(conf, share, plain)
            )
        except _CannotProveError as error:
            return _fail(str(error))
        chosen = [each for each in proof.facts.gpus if not gpu or each.uuid in gpu]
        if gpu and len(chosen) < len(set(gpu)):
            return _fail(f"this host has no GPU {', '.join(set(gpu) - {g.uuid for g in chosen})}")
        import dataclasses

        proof = dataclasses.replace(proof, facts=dataclasses.replace(proof.facts, gpus=chosen))
        return _print(measure(proof), json, facts)


def path_from(
    _conf: cfg.ConfigOpts,
    host: str,
    gpu_address: str | None,
    native: str | None,
    gsaas: str,
    share: int,
    json: str | None,
) -> int:
    """Test the path from *host*, and print the results. Returns the exit status."""
    import shlex

    from gsaas.prove import path as measuring

    try:
        document = _read(native)
    except (OSError, ValueError) as error:
        return _fail(f"{native} cannot be read: {error}")
    found = measuring.lines(
        host, share, gpu_address=gpu_address, native=document, gsaas=shlex.split(gsaas)
    )
    return _print(found, json, {"proof": "path", "from": host})


class _CannotProveError(Exception):
    """The tests cannot be run; the text says what is missing, and what to do."""


def _of_the_monitor(config_file: str | None) -> cfg.ConfigOpts:
    """Return the configuration of gsaas-monitor, whose daemons are tested."""
    argv = ["--config-file", config_file] if config_file else []
    return gsaas_conf.load(argv, prog="gsaas-monitor")


def _real(conf: cfg.ConfigOpts, share: int, plain: bool) -> Proof:
    """Return what is to be tested on this GPU host; raises `_CannotProveError`."""
    if os.geteuid() != 0 and not plain:
        raise _CannotProveError(
            "daemons are units of systemd, which only root may start: run it as root, or with --plain"
        )
    try:
        from gsaas.gpu_host import sources
        from gsaas.gpu_host.daemons.unavailable import SystemdUnavailable
        from gsaas.gpu_host.sources.base import SourceUnavailable
        from gsaas.prove import facts, place
        from gsaas.prove.jobs import Proof
        from gsaas.remoting.drivers import Drivers
    except ImportError as error:
        raise _CannotProveError(f"gsaas[monitor] is not installed here: {error}") from None
    try:
        middleware = Drivers(conf).of(sources.kind(conf, socket.gethostname()))
        address = sources.gpu_address(conf, socket.gethostname())
        settings = middleware.daemon_settings
        if settings is None:
            raise _CannotProveError(f"{middleware.name} has no daemons")
        where: place.Place = (
            place.Processes(settings, address, _own_search_path())
            if plain
            else place.Units(conf, settings, address)
        )
        found = facts.read(conf, settings, address)
    except (ValueError, GsaasError, SourceUnavailable, SystemdUnavailable) as error:
        raise _CannotProveError(str(error)) from None
    except ImportError as error:
        raise _CannotProveError(f"gsaas[monitor] is not installed here: {error}") from None
    if not found.gpus and not found.unreadable:
        raise _CannotProveError(
            "there is no GPU here, or no driver: nvidia-smi has to list one; --fake runs without a GPU"
        )
    return Proof(
        found,
        where,
        middleware,
        conf.daemons.memory_limit,
        share,
        conf.daemons.start_timeout,
        dict(os.environ),
        _client_library(conf, middleware.library_path),
    )


def _own_search_path() -> dict[str, str]:
    """Return where this process finds libraries; in a container, the driver's may be in no other place."""
    return {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}


def _client_library(conf: cfg.ConfigOpts, usual: str) -> Path | None:
    folder = Path(conf.remoting.library_path or usual or "/nonexistent")
    return folder if (folder / "libcuda.so.1").exists() else None


def _fake(conf: cfg.ConfigOpts, folder: str, share: int, cleanup: contextlib.ExitStack) -> Proof:
    """Return what is to be tested with a CUDA library that needs no GPU; raises `_CannotProveError`."""
    from gsaas.netlink.addresses import interface_of
    from gsaas.prove import facts, place
    from gsaas.prove.jobs import Proof
    from gsaas.remoting import base as remoting

    work = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="gsaas-prove-")))
    library = Path(folder).resolve() if folder else _built(work)
    if not (library / "libcuda.so.1").exists():
        raise _CannotProveError(f"there is no libcuda.so.1 in {library}")
    (work / "mps").mkdir()
    control = cleanup.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    control.bind(str(work / "mps/control"))
    control.listen()
    (work / "state").mkdir()
    conf.set_override("mps_pipe_directory", str(work / "mps"), "daemons")
    try:
        middleware = remoting.load(conf.remoting.driver, conf)
    except ValueError as error:
        raise _CannotProveError(str(error)) from None
    settings = middleware.daemon_settings
    if settings is None:
        raise _CannotProveError(f"{middleware.name} has no daemons")
    address = conf.monitor.gpu_address or "127.0.0.1"
    environment = {
        "LD_LIBRARY_PATH": str(library),
        "FAKE_CUDA_GPUS": FAKE_UUID,
        "FAKE_CUDA_STATE": str(work / "state"),
        **{name: value for name, value in os.environ.items() if name.startswith("FAKE_CUDA_")},
    }
    interface = interface_of(address)
    found = facts.Facts(
        "999.0 (fake)",
        [Gpu(FAKE_UUID, "Fake GPU", 8192)],
        mps={str(work / "mps"): True} if conf.daemons.memory_limit == "mps" else {},
        taken_ports=facts.taken_ports(settings),
        local_ports=facts.local_ports(),
        interface=interface,
        mtu=facts.mtu_of(interface),
        speed_mbit=facts.speed_of(interface),
    )
    return Proof(
        found,
        place.Processes(settings, address, environment),
        middleware,
        conf.daemons.memory_limit,
        share,
        conf.daemons.start_timeout,
        environment,
        _client_library(conf, middleware.library_path),
    )


def _built(work: Path) -> Path:
    """Compile the fake driver of the tests; return its folder. Raises `_CannotProveError`."""
    if not FAKE_SOURCE.exists():
        raise _CannotProveError(
            "the fake driver is in a clone of the repository only; --fake FOLDER names another CUDA library"
        )
    folder = work / "driver"
    folder.mkdir()
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-O2",
        "-w",
        "-o",
        str(folder / "libcuda.so.1"),
        str(FAKE_SOURCE),
        "-ldl",
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise _CannotProveError(f"the fake driver cannot be compiled: {error}") from None
    return folder


def _print(
    found: Generator[Line, None, None], file: str | None, facts: Mapping[str, object]
) -> int:
    """Print each result as soon as it is known, then what to mend; write the document. Returns the exit status."""
    with contextlib.closing(found):  # an interrupted one ends what it has started
        lines = list(_printed(found))
    print(f"\n{report.conclusion(lines)}")
    if file is not None:
        known = {
            **facts,
            "host": socket.gethostname(),
            "at": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}",
            "release": version.RELEASE,
        }
        text = json.dumps(report.document(lines, known), indent=2)
        try:
            Path(file).write_text(f"{text}\n", encoding="utf-8")
        except OSError as error:
            return _fail(f"{file} cannot be written: {error.strerror}")
    return EXIT_PROBLEM if verdicts.failed(lines) else EXIT_OK


def _printed(found: Iterable[Line]) -> Iterator[Line]:
    for line in found:
        print(report.table([line]), flush=True)
        yield line


def _read(file: str | None) -> Mapping[str, object] | None:
    if file is None:
        return None
    document = json.loads(Path(file).read_text(encoding="utf-8"))
    if not isinstance(document, dict):
        raise ValueError("it was not written by prove gpu-host --json")
    return document


def _mib(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 64 <= int(text) <= 1 << 20):
        raise argparse.ArgumentTypeError(f"{text} is not a number of MiB from 64")
    return int(text)


def _fail(sentence: str) -> int:
    print(f"gsaas-manage: {sentence}", file=sys.stderr)
    return EXIT_UNKNOWN
