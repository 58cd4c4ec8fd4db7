# SPDX-License-Identifier: Apache-2.0
"""A real Galera cluster of two MariaDB servers, both of which are written to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy

from tests.support import folders
from tests.support.databases import MariaDB, MissingServerError
from tests.support.ports import free_ports
from tests.support.waiting import PATIENCE, until

PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")


TRANSFER = """#!/bin/sh
# The state transfer to a node that has all files of the other one already: only their position is sent.
while [ $# -gt 0 ]; do
    case $1 in
        --role) role=$2 ;;
        --gtid) position=$2 ;;
        --address) address=$2 ;;
    esac
    shift
done
if [ "$role" = donor ]; then
    echo "$position" >"$FILE.new"
    mv "$FILE.new" "$FILE"
    echo "done $position"
else
    echo "ready $address"
    while [ ! -e "$FILE" ]; do sleep 0.1; done
    cat "$FILE"
fi
"""


PATIENT = (
    "evs.keepalive_period=PT3S",
    "evs.suspect_timeout=PT60S",
    "evs.inactive_timeout=PT120S",
    "evs.install_timeout=PT120S",
    "gmcast.peer_timeout=PT60S",
)
"""Options with which nodes wait for one that sends no signs of life. By default a node that a busy machine keeps from
running for 5 s is lost, and of two nodes neither works without the other."""
DEFAULT = ()
"""What Galera does by itself."""


class Node(MariaDB):
    """One server of a cluster."""

    patience: Sequence[str] = PATIENT
    peers = ""
    """The addresses of the others; empty for the node that makes the cluster."""
    shared: Path
    """A folder that both nodes may write to."""
    origin: Path | None = None
    """The files of a node to begin with, so that nothing has to be transferred."""

    def initialise(self) -> None:
        self.write_transfer(self.shared)
        if not PROVIDER.exists():
            raise MissingServerError(f"{PROVIDER} is missing; apt-get install galera-4")
        self.port, _ = free_ports(2)  # it listens at the second one now and then
        if self.origin is None:
            super().initialise()
        else:
            command = ["cp", "-a", str(self.origin), str(self.directory / "data")]
            subprocess.run(command, check=True)

    def write_transfer(self, folder: Path) -> None:
        """Write the program for the state transfer, by a file in *folder*, which both nodes may use."""
        program = self.directory / "wsrep_sst_position"
        program.write_text(TRANSFER.replace("$FILE", f"{folder}/position"))
        program.chmod(0o755)

    def command(self) -> Sequence[str]:
        options = ";".join(
            [
                f"gmcast.listen_addr=tcp://127.0.0.1:{self.port}",
                "gcache.size=16M",
                "pc.recovery=false",
                *self.patience,
            ]
        )
        path = f"PATH={self.directory}:{os.environ['PATH']}"
        return (
            *("env", path, *super().command()),
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--wsrep-on=ON",
            f"--wsrep-provider={PROVIDER}",
            f"--wsrep-provider-options={options}",
            f"--wsrep-cluster-address=gcomm://{self.peers}",
            f"--wsrep-node-address=127.0.0.1:{self.port}",
            "--wsrep-sst-method=position",
            *(() if self.peers else ("--wsrep-new-cluster",)),
        )


@contextmanager
def cluster(patience: Sequence[str] = PATIENT) -> Iterator[tuple[Node, Node]]:
    """Yield the two nodes of a cluster."""
    first, second = Node(), Node()
    first.patience = second.patience = patience
    first.shared = second.shared = folders.make("cluster")
    first.shared.chmod(0o777)
    try:
        with first:
            first.stop()  # so that its files can be copied
            state = first.directory / "data" / "grastate.dat"
            state.write_text(
                state.read_text().replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1")
            )
            second.origin, second.peers = first.shared / "data", f"127.0.0.1:{first.port}"
            subprocess.run(["cp", "-a", first.directory / "data", second.origin], check=True)
            first.start()
            with second:
                _await_size(first, 2)
                yield first, second
    finally:
        shutil.rmtree(first.shared)


@contextmanager
def frozen(first: Node, second: Node) -> Iterator[None]:
    """Have *second* stand still, which *first* notices in a while; both answer queries afterwards."""
    os.kill(second.pid, signal.SIGSTOP)
    try:
        # A thread that the signal has not reached yet could still acknowledge what the first one writes.
        until(lambda: stands_still(second.pid), "every thread of the node to stand still")
        yield
    finally:
        os.kill(second.pid, signal.SIGCONT)
        until(lambda: is_ready(first) and is_ready(second), "the nodes to find each other")


def stands_still(pid: int) -> bool:
    """Return whether the kernel has stopped each thread of a process (proc_pid_stat(5))."""
    stats = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in stats)


@contextmanager
def alone(first: Node, second: Node) -> Iterator[None]:
    """Have *second* stand still, and *first* know that it is alone, so that it answers no query.

    Their cluster needs `DEFAULT`.
    """
    with frozen(first, second):
        until(lambda: not is_ready(first), "the node to miss the other")
        yield


def is_ready(node: Node) -> bool:
    """Return whether *node* answers queries."""
    try:
        return node.status("wsrep_ready") == "ON"
    except sqlalchemy.exc.OperationalError:
        return False


def _await_size(node: Node, size: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while node.status("wsrep_cluster_size") != str(size):
        assert time.monotonic() < deadline, "the nodes have not found each other"
        time.sleep(0.1)
