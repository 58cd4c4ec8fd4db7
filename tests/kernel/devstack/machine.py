# SPDX-License-Identifier: Apache-2.0
"""A machine with systemd as its first process, which sees what is installed on this one and has a network of its own.

It is booted as those of the test bed are, and needs nothing of the bed.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyroute2 import netns

from tests.openstack.bed import booted
from tests.support.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[3]
"""Also where the machine has a folder of its own, such as /tmp."""


class Machine:
    """Use it in a `with` block. *folder* is root's own, and has to be empty; *shared* is seen in the machine, too.

    With *our_network* it has this machine's network instead of one of its own, to install packages.
    """

    def __init__(self, folder: Path, shared: Path, *, our_network: bool = False) -> None:
        self._folder = folder
        self._shared = shared
        self._our_network = our_network

    def __enter__(self) -> Machine:
        for made in ("written/etc", "work", "root"):
            (self._folder / made).mkdir(parents=True)
        (self._folder / "written/etc/hosts").write_text("127.0.0.1 localhost\n")
        (self._folder / "written/etc/hostname").write_text("node-1\n")
        writable = {} if self._our_network else {"SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"}
        (self._folder / "group").symlink_to(booted.add_group(f"gsaas-{self._folder.name}"))
        options = [f"--directory={self._folder / 'root'}", "--machine=node-1"]
        if not self._our_network:
            options.append("--private-network")
        options += [f"--bind={self._shared}", f"--bind-ro={REPOSITORY}"]
        alone = ("setpriv", "--pdeathsig=KILL")  # it ends with the tests, however these end
        with (self._folder / "console").open("w") as console:
            self._process = subprocess.Popen(
                [
                    *alone,
                    "unshare",
                    "--mount",
                    "sh",
                    "-euc",
                    booted.BOOT,
                    "boot",
                    self._folder,
                    *options,
                ],
                env={**os.environ, **writable},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        booted.pull(self._folder)
        self._process.wait()

    def type(self, script: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Have root's shell run *script*; fails the test if it fails, unless it may."""
        spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root")
        done = subprocess.run(
            ["nsenter", f"--target={self._leader()}", *spaces, "bash", "-euc", script],
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            capture_output=True,
            text=True,
        )
        assert not check or done.returncode == 0, f"{script}:\n{done.stdout}{done.stderr}"
        return done

    @contextmanager
    def network(self) -> Iterator[None]:
        """Run the block, and threads that it starts, in the machine's network."""
        original = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        target = os.open(f"/proc/{self._leader()}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            netns.setns(target)
            yield
        finally:
            netns.setns(original)
            os.close(original)
            os.close(target)

    def show(self, unit: str, field: str) -> str:
        """Return a property of a unit, as systemd has it."""
        return self.type(f"systemctl show --value -p {field} {unit}").stdout.strip()

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "console").read_text())
            time.sleep(0.25)

    def _is_up(self) -> bool:
        if not self._leader():
            return False
        said = self.type("systemctl is-system-running || true", check=False).stdout
        return said.strip() in ("running", "degraded")  # a machine without hardware may be degraded

    def _leader(self) -> str:
        """The machine's first process; nothing before there is one."""
        asked = subprocess.run(
            ["pgrep", "--parent", str(self._process.pid)], capture_output=True, text=True
        )
        return asked.stdout.split("\n", maxsplit=1)[0]
