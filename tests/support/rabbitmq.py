# SPDX-License-Identifier: Apache-2.0
"""A real RabbitMQ for tests: made in a directory of its own, killed and started again at will.

It listens on loopback only (that of a network namespace, if it is given one), runs without privileges in a
process namespace of its own (its port mapper would outlive it otherwise), and ends with the test process,
however that ends.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from gsaas.netlink.namespace import entered
from tests.support.databases import GROUP, USER, MissingServerError
from tests.support.ports import ADDRESS, free_ports
from tests.support.waiting import until

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # the one in /usr/sbin insists on its user
CONTROL = PROGRAM.with_name("rabbitmqctl")
PACKAGE = "rabbitmq-server"
PATIENCE = 120.0  # seconds
NO_SPINNING = "+sbwt none +sbwtdcpu none +sbwtdio none"
"""Idle schedulers of Erlang spin otherwise, which a small machine cannot afford."""


class RabbitMQ:
    """One broker. Use it in a `with` block; `kill` and `start` as often as wanted meanwhile."""

    def __init__(self, netns: str | None = None) -> None:
        self._netns = netns
        self.port, self._mapper_port, self._node_port = free_ports(3)
        self.url = f"rabbit://guest:guest@{ADDRESS}:{self.port}/"
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> RabbitMQ:
        if not PROGRAM.exists():
            raise MissingServerError(
                f"{PROGRAM} is not installed, and these tests ask a real message bus; "
                f"on Debian and Ubuntu: apt-get install {PACKAGE}"
            )
        self._directory = Path(tempfile.mkdtemp(prefix="gsaas-test-"))
        shutil.chown(self._directory, USER, GROUP)
        (self._directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = {ADDRESS}:{self.port}\nlog.console = true\nlog.file = false\n"
        )
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
        """Start it, with whatever it held durably before, and return once it takes connections."""
        with (self._directory / "log").open("ab") as log:
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
        until(self._listens, "RabbitMQ", PATIENCE)

    @property
    def pid(self) -> int:
        """Of the process that has started all others of the broker."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """End it without warning, and everything that it started."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def control(self, *words: str) -> str:
        """Run rabbitmqctl with these arguments, and return its output."""
        done = subprocess.run(
            ["setpriv", f"--reuid={USER}", f"--regid={GROUP}", "--clear-groups", "--"]
            + [*(("ip", "netns", "exec", self._netns) if self._netns else ())]
            + [str(CONTROL), "--quiet", *words],
            env=self._environment(),
            cwd=self._directory,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        if done.returncode:
            raise RuntimeError(f"rabbitmqctl {' '.join(words)}: {done.stderr or done.stdout}")
        return done.stdout

    def _listens(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            log = (self._directory / "log").read_text(errors="replace")
            raise RuntimeError(f"RabbitMQ did not start:\n{log}")
        with entered(self._netns), socket.socket() as probe:
            return probe.connect_ex((ADDRESS, self.port)) == 0

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
                f"-kernel inet_dist_use_interface {{127,0,0,1}} {NO_SPINNING}"
            ),
            "ERL_EPMD_ADDRESS": ADDRESS,
            "ERL_EPMD_PORT": str(self._mapper_port),
        }
