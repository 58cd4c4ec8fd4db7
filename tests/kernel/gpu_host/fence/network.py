# SPDX-License-Identifier: Apache-2.0
"""Hosts as network namespaces, and programs in them that connect to each other."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gsaas.gpu_host.fence.table import FenceTable
from tests.support.waiting import PATIENCE

PEERS = str(Path(__file__).parents[2] / "rodvr/peers.py")
GPU_HOST = "192.168.51.11"
ADDRESSES = {"gpu": GPU_HOST, "c1": "192.168.51.21", "c2": "192.168.51.22", "odd": "192.168.51.66"}
PORTS = (8308, 20000)
OPEN_PORT = 9999
"""A port that the fence does not guard."""
RANGES = ((8308, 8311), (20000, 20999))
NOBODY = 65534


class Network:
    def __init__(self) -> None:
        self._prefix = f"fence{os.getpid()}-"
        self._daemon: subprocess.Popen[str] | None = None

    def netns(self, host: str) -> str:
        return self._prefix + host

    def up(self) -> None:
        switch = self.netns("sw")
        lines = [f"ip netns add {switch}", f"ip -n {switch} link add br0 type bridge"]
        lines += [f"ip -n {switch} link set br0 up"]
        for number, (host, address) in enumerate(ADDRESSES.items()):
            name = self.netns(host)
            lines += [
                f"ip netns add {name}",
                f"ip -n {name} link set lo up",
                f"ip -n {name} link add gpu0 type veth peer name p{number} netns {switch}",
                f"ip -n {name} addr add {address}/24 dev gpu0",
                f"ip -n {name} -6 addr add fd51::{number + 1}/64 dev gpu0 nodad",
                f"ip -n {name} link set gpu0 up",
                f"ip -n {switch} link set p{number} master br0 up",
            ]
        subprocess.run(["sh", "-ec", "\n".join(lines)], check=True)
        ports = map(str, (*PORTS, OPEN_PORT))
        self._daemon = self._start("gpu", "daemon", "gpu", *ports)
        assert self._daemon.stdout.readline() == "ready\n"

    def down(self) -> None:
        if self._daemon is not None:
            self._daemon.terminate()
            self._daemon.wait()
        for host in ("sw", *ADDRESSES):
            subprocess.run(
                ["ip", "netns", "del", self.netns(host)], check=False, capture_output=True
            )

    def ask(
        self,
        host: str,
        port: int,
        *,
        to: str = GPU_HOST,
        uid: int = 0,
        group: Path | None = None,
    ) -> str:
        """Return what a program of *host* receives from a daemon, or the name of its error."""
        return self.run(host, "ask", to, str(port), uid=uid, group=group)

    @contextmanager
    def waiting(self, host: str, port: int, to: str = GPU_HOST) -> Iterator[subprocess.Popen[str]]:
        """Run a program of *host* that is connected to a daemon and waits."""
        process = self._start(host, "wait", to, str(port))
        try:
            assert process.stdout.readline().startswith("gpu:")
            yield process
        finally:
            process.kill()
            process.wait()

    def nft(self, *words: str) -> str:
        return subprocess.run(
            ["ip", "netns", "exec", self.netns("gpu"), "nft", *words],
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def ruleset(self) -> list[dict[str, Any]]:
        entries = json.loads(self.nft("-j", "list", "ruleset"))["nftables"]
        return [entry for entry in entries if "metainfo" not in entry]

    def admitted(self) -> set[tuple[str, int]]:
        """Return the elements of the set, as nft reads them."""
        listed = json.loads(self.nft("-j", "list", "set", "inet", "gsaas_fence", "admitted"))
        elements = listed["nftables"][1]["set"].get("elem", [])
        return {tuple(element["concat"]) for element in elements}

    def listeners(self) -> set[tuple[int, int]]:
        """Return the ports and control groups of daemons; nft names groups that it finds."""
        table = FenceTable(self.netns("gpu"))
        try:
            return set(table._listeners())
        finally:
            table.close()

    def established(self, host: str, port: int) -> int:
        """Return how many connections to a daemon the GPU host has from *host*, as ss reads it."""
        words = ["ss", "-Htn", "state", "established", f"sport = :{port} and dst {ADDRESSES[host]}"]
        command = ["ip", "netns", "exec", self.netns("gpu"), *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return len(done.stdout.splitlines())

    def _command(
        self, host: str, words: Sequence[str], uid: int, group: Path | None = None
    ) -> list[str]:
        who = [] if not uid else ["setpriv", "--reuid", str(uid), "--clear-groups"]
        join = 'echo $$ >"$0/cgroup.procs"; exec "$@"'
        where = [] if group is None else ["sh", "-euc", join, str(group)]
        return [
            *where,
            *("ip", "netns", "exec", self.netns(host), *who),
            *("/usr/bin/python3", "-ES", "-", *words),
        ]

    @contextmanager
    def listening(
        self, port: int, group: Path | None = None, *, host: str = "gpu"
    ) -> Iterator[None]:
        """Have a program listen on *host*, of this control group."""
        name = host if group is None else group.name
        process = self._start(host, "daemon", name, str(port), group=group)
        try:
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.terminate()
            process.wait()

    def _start(self, host: str, *words: str, group: Path | None = None) -> subprocess.Popen[str]:
        command = self._command(host, words, 0, group)
        command[command.index("-")] = PEERS
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def run(self, host: str, *words: str, uid: int = 0, group: Path | None = None) -> str:
        # Its source comes by standard input: other users may not read our folders.
        done = subprocess.run(
            self._command(host, words, uid, group),
            input=Path(PEERS).read_text(encoding="utf-8"),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert not done.stderr, done.stderr
        return done.stdout.strip()
