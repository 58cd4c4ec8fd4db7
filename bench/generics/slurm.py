# SPDX-License-Identifier: Apache-2.0
"""Debian's Slurm on this machine with simulated GPUs, configured to start jobs as soon as possible.

Several slurmd on one host act as nodes; the GPUs of each are device files that are copies of /dev/null. Allocations are
tried as soon as they are requested, and delays and accounting are switched off. The controller's state is on disk.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "munge",
    "libslurm-dev",
)
PORT = 17800
IDLE_TIMEOUT = 60.0
"""Seconds within which all nodes have to become idle."""
LOST_JOB_TIMEOUT = 20.0
"""Seconds after which a job whose end Slurm has not noticed is cancelled."""


def missing() -> str | None:
    """Return why Slurm cannot be measured on this machine; None if it can."""
    programs = ("slurmctld", "slurmd", "srun", "salloc", "sinfo", "munged")
    absent = [program for program in programs if shutil.which(program) is None]
    if absent:
        return f"there is no {', '.join(absent)}"
    return None if os.geteuid() == 0 else "its nodes need root"


@contextmanager
def running(gpus: int) -> Iterator[dict[str, str]]:
    """Start Slurm with *gpus* GPUs; yield the environment for its programs. Afterwards end it and remove its files."""
    nodes = 16 if gpus >= 256 else 4
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", dir="/var/tmp"))
        )
        folder.chmod(0o755)
        for name in ("log", "munge", "state", "spool", "dev"):
            (folder / name).mkdir(mode=0o755)
        for index in range(gpus // nodes):
            os.mknod(folder / "dev" / f"gpu{index}", 0o020666, os.makedev(1, 3))
        (folder / "slurm.conf").write_text(_configuration(folder, nodes, gpus // nodes))
        (folder / "gres.conf").write_text(
            f"Name=gpu File={folder}/dev/gpu[0-{gpus // nodes - 1}]\n"
        )
        environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        _start_munge(stack, folder, environment)
        _start(stack, folder, environment, "slurmctld", "-D", "-c")
        for number in range(nodes):
            (folder / "spool" / f"n{number}").mkdir()
            _start(stack, folder, environment, "slurmd", "-D", "-N", f"n{number}")
        _await_idle(environment, nodes)
        yield environment


def wait_until_idle(environment: dict[str, str]) -> None:
    """Wait until every node is idle again, so that the clean-up after one batch is not measured with the next.

    Sometimes Slurm does not notice that a job has ended. Such a job is cancelled.
    """
    if not _become_idle(environment, None, LOST_JOB_TIMEOUT):
        subprocess.run(["scancel", "--user=root"], env=environment, check=True)
        _await_idle(environment, None)


def _start(stack: ExitStack, folder: Path, environment: dict[str, str], *command: str) -> None:
    log = stack.enter_context((folder / "log" / command[0]).open("ab"))
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _start_munge(stack: ExitStack, folder: Path, environment: dict[str, str]) -> None:
    key = folder / "munge.key"
    key.touch(mode=0o400)
    key.write_bytes(os.urandom(1024))
    _start(
        stack,
        folder,
        environment,
        *("munged", "--foreground", "--force", f"--key-file={key}", "--num-threads=4"),
        *(f"--socket={folder}/munge/socket", f"--pid-file={folder}/munge/pid"),
        *(f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed"),
    )
    deadline = time.monotonic() + IDLE_TIMEOUT
    while not (folder / "munge" / "socket").exists():
        assert time.monotonic() < deadline, "munged does not start"
        time.sleep(0.05)


def _await_idle(environment: dict[str, str], nodes: int | None) -> None:
    assert _become_idle(environment, nodes, IDLE_TIMEOUT), "Slurm's nodes are not idle"


def _become_idle(environment: dict[str, str], nodes: int | None, timeout: float) -> bool:
    """Return whether all nodes, *nodes* of them unless that is None, become idle within *timeout* seconds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        listed = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%T"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        states = listed.stdout.split()
        if states and set(states) == {"idle"} and nodes in (None, len(states)):
            return True
        time.sleep(0.1)
    return False


def _configuration(folder: Path, nodes: int, gpus_per_node: int) -> str:
    """Return the content of slurm.conf. Every node has as many CPUs as GPUs."""
    here = socket.gethostname()
    settings = {
        "ClusterName": "bench",
        "SlurmctldHost": f"{here}(127.0.0.1)",
        "SlurmctldPort": PORT,
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/slurmd.%n.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/slurmd.%n.log",
        "SlurmctldDebug": "error",
        "SlurmdDebug": "error",
        "SlurmdParameters": "config_overrides",
        "ReturnToService": 2,
        "MpiDefault": "none",
        "ProctrackType": "proctrack/pgid",
        "TaskPlugin": "task/none",
        "SwitchType": "switch/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "JobAcctGatherFrequency": 0,
        "AccountingStorageType": "accounting_storage/none",
        "JobCompType": "jobcomp/none",
        "PriorityType": "priority/basic",
        "PropagateResourceLimits": "NONE",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=2,default_queue_depth=2000,"
        "sched_min_interval=0,bf_interval=30",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU",
        "GresTypes": "gpu",
        "MaxJobCount": 50000,
        "MinJobAge": 2,
        "MessageTimeout": 100,
        "TCPTimeout": 60,
        "SlurmdTimeout": 3000,
        "InactiveLimit": 0,
        "KillWait": 5,
        "EpilogMsgTime": 1,
        "CompleteWait": 0,
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    lines += [
        f"NodeName=n[0-{nodes - 1}] NodeHostname={here} NodeAddr=127.0.0.1 Port=[{PORT + 10}-{PORT + 9 + nodes}] "
        f"CPUs={gpus_per_node} Boards=1 SocketsPerBoard=1 CoresPerSocket={gpus_per_node} ThreadsPerCore=1 "
        f"RealMemory=1000000 "
        f"Gres=gpu:{gpus_per_node} State=UNKNOWN",
        f"PartitionName=main Nodes=n[0-{nodes - 1}] Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO",
    ]
    return "\n".join(lines) + "\n"
