# SPDX-License-Identifier: Apache-2.0
"""How long `gsaas run` takes to begin its program when its cGPU has a daemon of its own, beside that daemon alone.

In a machine with systemd, whose units daemons are on GPU hosts; gsaas-standalone starts them as processes. The daemon
is the tests' fake one, a program of Python, and then LUPINE's own server in front of the fake CUDA driver, where that
can be built (tests/support/lupine.py). Three things take turns: the daemon as a plain process until it listens, the
same as a unit with the walls of a tenant's, until it answers its health check, and `gsaas run -ncgpus=1 -poolmem=512
-mode=shared` until its program begins.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gsaas.conf
from bench.report import machine, median, progress
from gsaas.gpu_host.daemons import supervision
from gsaas.gpu_host.daemons.health import HealthCheckFailed
from gsaas.gpu_host.daemons.systemd import Systemd
from gsaas.gpu_host.daemons.unit_runner import UnitRunner
from gsaas.objects.daemon import Daemon
from gsaas.remoting import base
from tests.support import lupine
from tests.support.gpu_machine import GpuMachine
from tests.support.waiting import until

REPOSITORY = Path(__file__).parents[1]
ROUNDS, QUICK_ROUNDS = 15, 1
PORT = 19000
"""Of the daemons that are started alone; none of a lease has it."""
BEGINS_WITHIN = 60
"""Milliseconds that `gsaas run` may add to the start of the daemon."""
CALM = 1.2
"""Seconds between the end of a daemon and the start of the next one.

systemd holds back mounts for up to a second after five changes of mounts within one, and each daemon has a mount.
"""
PAUSE = 0.0002
"""Seconds between two looks whether a daemon listens."""
GPU = "GPU-00000000-0000-4000-8000-000000000000"
PROGRAMS = Path(sys.executable).parent
CREDENTIALS = "/run/gsaas/credentials.json"
RUN = f"""\
export GSAAS_CREDENTIALS={CREDENTIALS}
date +%s%N
{PROGRAMS}/gsaas run -ncgpus=1 -poolmem=512 -mode=shared -- /usr/bin/date +%s%N
"""


@dataclass(frozen=True)
class Middleware:
    """A daemon to measure. *files* are copied into the machine, to /opt; *options* are of the group `daemons`."""

    name: str
    driver: str
    files: Sequence[Path]
    options: Mapping[str, str] = field(default_factory=dict)

    def configuration(self) -> str:
        """Return the configuration of gsaas-standalone."""
        chosen = {
            "life": "per-lease",
            "folder": "/opt",
            "memory_limit": "none",
            "own_devices": "false",
            "stop_timeout": "1",
            "tmp_mb": "8",
            **self.options,
        }
        lines = [f"{name} = {value}" for name, value in chosen.items()]
        return f"[remoting]\ndriver = {self.driver}\n[daemons]\n" + "\n".join(lines) + "\n"


FAKE = Middleware(
    "fake",
    "rcuda",
    [REPOSITORY / "tests/support/fake_daemon.py"],
    {
        "command": "/usr/bin/python3 -ES /opt/fake_daemon.py {port} {gpu_uuid}",
        "health": "simulated",
    },
)


def run(quick: bool = False) -> dict[str, Any]:
    """Return milliseconds of each of the three, and by how much `gsaas run` exceeds the daemon's start."""
    if os.geteuid() != 0:
        raise SystemExit("this benchmark boots a machine: run it as root")
    rows, reach = [], []
    notes: list[dict[str, Any]] = []
    middlewares = [FAKE]
    try:
        built = lupine.built()
    except lupine.NotBuildable as reason:
        notes.append({"note": str(reason)})
    else:
        files = [built.server, built.driver / "libcuda.so.1"]
        middlewares.append(
            Middleware("lupine", "lupine", files, {"environment": "LD_LIBRARY_PATH:/opt"})
        )
    with GpuMachine() as booted:
        for middleware in middlewares:
            taken = _measure(booted, middleware, QUICK_ROUNDS if quick else ROUNDS)
            rows += [_row(middleware.name, what, found) for what, found in taken.items()]
            reach.append(_bound(middleware.name, taken))
    return {"bench": "daemons", "machine": machine(), "rows": rows + notes, "reach": reach}


def _row(daemon: str, what: str, seconds: list[float]) -> dict[str, Any]:
    found = [each * 1e3 for each in seconds]
    return {
        "daemon": daemon,
        "until": what,
        "median_ms": median(found),
        "least_ms": min(found),
        "most_ms": max(found),
    }


PROCESS, UNIT, BEGUN = "it listens", "its unit answers", "the program of gsaas run begins"


def _bound(name: str, taken: Mapping[str, list[float]]) -> dict[str, Any]:
    pairs = zip(taken[BEGUN], taken[PROCESS], strict=True)
    return {
        "what": f"{name}: `gsaas run` begins its program after the start of its daemon, ms",
        "value": median([begun - alone for begun, alone in pairs]) * 1e3,
        "bound": f"<= {BEGINS_WITHIN}",
    }


def _measure(booted: GpuMachine, middleware: Middleware, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each of the three, which take turns."""
    progress(f"the daemon of {middleware.name}")
    for file in middleware.files:
        booted.type(f"install -m 0755 {file} /opt/")
    Path(booted.shared, "standalone.conf").write_text(middleware.configuration())
    taken: dict[str, list[float]] = {PROCESS: [], UNIT: [], BEGUN: []}
    with _standalone(booted), booted.network():
        alone = _Alone(booted)
        for _ in range(rounds + 1):
            taken[PROCESS].append(alone.process())
            time.sleep(CALM)
            taken[UNIT].append(alone.unit())
            time.sleep(CALM)
            taken[BEGUN].append(_until_program_begins(booted))
            time.sleep(CALM)
    return {
        what: found[1:] for what, found in taken.items()
    }  # the first round reads programs from disk


def _until_program_begins(booted: GpuMachine) -> float:
    before, begun = booted.type(RUN).stdout.split()
    return (int(begun) - int(before)) / 1e9


class _Alone:
    """Starts a daemon without GSaaS."""

    def __init__(self, booted: GpuMachine) -> None:
        self._machine = booted
        conf = gsaas.conf.load(files=[str(booted.shared / "standalone.conf")])
        driver = base.load(conf.remoting.driver, conf)
        assert driver.daemon_settings is not None
        self._settings = driver.daemon_settings
        systemd = Systemd(booted.bus)
        self._runner = UnitRunner(
            self._settings,
            "gpu1",
            "127.0.0.1",
            systemd,
            supervision.confinement(conf, systemd.version()),
        )
        self._daemon = Daemon(GPU, PORT, 512, "00000000-0000-4000-8000-000000000000", 0)

    def process(self) -> float:
        """Return the seconds until the daemon listens that is a plain process."""
        command = self._settings.command(self._daemon, "gpu1", "127.0.0.1")
        root = ("nsenter", f"--target={self._machine.leader}", "--net", "--root", "--wdns=/opt")
        words = [f"{name}={value}" for name, value in command.environment.items()]
        began = time.monotonic()
        process = subprocess.Popen([*root, "env", *words, *command.argv], start_new_session=True)
        try:
            self._await_listener(True)
            return time.monotonic() - began
        finally:
            os.killpg(process.pid, 9)
            process.wait()
            self._await_listener(False)

    def unit(self) -> float:
        """Return the seconds until the daemon answers that is a unit."""
        began = time.monotonic()
        self._runner.start(self._daemon, 0)
        try:
            self._await_listener(True)
            self._runner.check(self._daemon)
            return time.monotonic() - began
        except HealthCheckFailed as error:
            raise RuntimeError(str(error)) from error
        finally:
            self._runner.kill(self._daemon.key)
            until(self._is_gone, "the end of the daemon")

    def _is_gone(self) -> bool:
        self._runner.forget(self._daemon.key)  # systemd keeps a unit that was killed
        return not self._runner.units()

    def _await_listener(self, wanted: bool) -> None:
        while (self._runner.taken_port(self._daemon) is not None) != wanted:
            time.sleep(PAUSE)


@contextmanager
def _standalone(booted: GpuMachine) -> Iterator[None]:
    """Run gsaas-standalone in the machine, and remove what it made."""
    command = shlex.join(
        [f"{PROGRAMS}/gsaas-standalone", f"--config-file={booted.shared}/standalone.conf"]
    )
    booted.type(
        f"systemd-run --quiet --collect --unit=standalone -- {command} --log-file=/run/standalone.log"
    )
    list_ = f"GSAAS_CREDENTIALS={CREDENTIALS} {PROGRAMS}/gsaas list"

    def answers() -> bool:
        said = booted.type(
            "systemctl is-active standalone || { journalctl -u standalone; cat /run/standalone.log; }",
            check=False,
        ).stdout
        assert said.strip() == "active", said
        return booted.type(list_, check=False).returncode == 0

    try:
        until(answers, "the API to answer", patience=120)
        yield
    finally:
        booted.type("systemctl stop standalone || true")
        booted.type(f"{command} --clean")
