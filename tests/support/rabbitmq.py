# SPDX-License-Identifier: Apache-2.0
"""A real RabbitMQ for tests: made in a directory of its own, killed and started again at will.

It listens on loopback only (that of a network namespace, if it is given one), runs without privileges in a
process namespace of its own (its port mapper would outlive it otherwise), and ends with the test process,
however that ends.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.support import folders
from tests.support.databases import GROUP, USER, MissingServerError, children, runs
from tests.support.ports import ADDRESS, free_ports
from tests.support.waiting import PATIENCE, until

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one in /usr/sbin insists on its user
CONTROL = PROGRAM.with_name("rabbitmqctl")
PACKAGE = "rabbitmq-server"
NO_SPINNING = "+sbwt none +sbwtdcpu none +sbwtdio none"
"""Idle schedulers of Erlang spin otherwise, which a small machine cannot afford."""
SETUP = f"-kernel net_setuptime {PATIENCE:.0f}"
"""Seconds in which rabbitmqctl and the server have to connect; of itself 7, too few while others use the processors."""


class RabbitMQ:
    """One broker. Use it in a `with` block; `kill` and `start` as often as wanted meanwhile."""

    def __init__(self, netns: str | None = None, definitions: dict[str, Any] | None = None) -> None:
        """*definitions* are what it has from the beginning, as `rabbitmqctl export_definitions` writes it."""
        self._netns = netns
        self._definitions = definitions
        self.port, self._mapper_port, self._node_port = free_ports(3)
        self.url = f"rabbit://guest:guest@{ADDRESS}:{self.port}/"
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> RabbitMQ:
        if not PROGRAM.exists():
            raise MissingServerError(
                f"{PROGRAM} is not installed, and these tests ask a real message bus; "
                f"on Debian and Ubuntu: apt-get install {PACKAGE}"
            )
        self._directory = folders.make("bus")
        shutil.chown(self._directory, USER, GROUP)
        settings = [
            f"listeners.tcp.1 = {ADDRESS}:{self.port}",
            f"handshake_timeout = {1000 * PATIENCE:.0f}",  # milliseconds
            *("log.console = true", "log.file = false"),
        ]
        if self._definitions is not None:
            file = self._directory / "definitions.json"
            file.write_text(json.dumps(self._definitions))
            settings.append(f"load_definitions = {file}")
        (self._directory / "rabbitmq.conf").write_text("\n".join([*settings, ""]))
        (self._directory / "plugins").write_text("[].\n")
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        shutil.rmtree(self._directory)

    def start(self) -> None:
        """Start it, with whatever it held durably before, and return once it takes connections and commands."""
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig=KILL", "--"),
                    *(("ip", "netns", "exec", self._netns) if self._netns else ()),
                    *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
                    *("setpriv", f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups"),
                    *("--pdeathsig=KILL", "--", str(PROGRAM)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                cwd=self._directory,
            )
        until(self._started, "RabbitMQ")

    @property
    def pid(self) -> int:
        """Of the process that has started all others of the broker."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it without warning, and everything that it started."""
        if self._process is not None:
            # The first process of a namespace is gone when all are.
            first = children(self._process.pid)
            self._process.kill()
            self._process.wait()
            self._process = None
            until(lambda: not any(map(runs, first)), "the processes of RabbitMQ to end")

    def control(self, *words: str) -> str:
        """Run rabbitmqctl with these arguments, and return its output."""
        done = subprocess.run(
            ["setpriv", f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups", "--"]
            + [*(("ip", "netns", "exec", self._netns) if self._netns else ())]
            + [str(CONTROL), "--quiet", f"--timeout={PATIENCE:.0f}", *words],
            env=self._environment(),
            cwd=self._directory,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if done.returncode:
            raise RuntimeError(f"rabbitmqctl {' '.join(words)}: {done.stderr or done.stdout}")
        return done.stdout

    def script(self) -> str:
        """A program that is rabbitmqctl for this broker, wherever its folder can be seen."""
        alone = ["setpriv", f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups", "--"]
        variables = [f"{name}={value}" for name, value in self._environment().items()]
        command = shlex.join(["env", "-i", *variables, *alone, str(CONTROL)])
        return f'#!/bin/sh\ncd {self._directory} && exec {command} "$@"\n'

    def _started(self) -> bool:
        log = (self._directory / "log").read_text(errors="replace")
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"RabbitMQ did not start:\n{log}")
        # It listens before it takes commands.
        return "Server startup complete" in log

    def _environment(self) -> dict[str, str]:
        directory = self._directory
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "RABBITMQ_NODENAME": f"gsaas-test-{self.port}@localhost",
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"-kernel inet_dist_use_interface {{127,0,0,1}} {SETUP} {NO_SPINNING}"
            ),
            "RABBITMQ_CTL_ERL_ARGS": f"{SETUP} {NO_SPINNING}",
            "ERL_EPMD_ADDRESS": ADDRESS,
            "ERL_EPMD_PORT": str(self._mapper_port),
        }
