"""Debian's Slurm on this machine, set up to start jobs as soon as it can, with GPUs that are not there.

Several slurmd on one host pretend to be nodes, each with device files that are copies of /dev/null. Allocations are
tried when they are asked for; the settings leave out whatever would wait or account. Its state is on disk.
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
PATIENCE = 60.0
"""Seconds within which all nodes are idle."""
FORGOTTEN = 20.0
"""Seconds after which a job that nobody waits for any more has been forgotten."""


def missing() -> str | None:
    """Why Slurm cannot be measured here; None if it can."""
    programs = ("slurmctld", "slurmd", "srun", "salloc", "sinfo", "munged")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    absent = [program for program in programs if shutil.which(program, path=path) is None]
    if absent:
        return f"there is no {', '.join(absent)}"
    return None if os.geteuid() == 0 else "its nodes need root"


@contextmanager
def running(gpus: int) -> Iterator[dict[str, str]]:
    """Slurm with *gpus* GPUs; yields the environment for its programs. Ends what it started, and leaves no file."""
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
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
        }
        _start_munge(stack, folder, environment)
        _start(stack, folder, environment, "slurmctld", "-D", "-c")
        for number in range(nodes):
            (folder / "spool" / f"n{number}").mkdir()
            _start(stack, folder, environment, "slurmd", "-D", "-N", f"n{number}")
        _await_idle(environment, nodes)
        yield environment


def settle(environment: dict[str, str]) -> None:
    """Wait until every node is idle again: what a batch left to tidy up is not the next one's.

    Now and then Slurm does not notice that a job has ended. Such a job is cancelled.
    """
    if not _are_idle(environment, None, FORGOTTEN):
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
    deadline = time.monotonic() + PATIENCE
    while not (folder / "munge" / "socket").exists():
        assert time.monotonic() < deadline, "munged does not start"
        time.sleep(0.05)


def _await_idle(environment: dict[str, str], nodes: int | None) -> None:
    assert _are_idle(environment, nodes, PATIENCE), "Slurm's nodes are not idle"


def _are_idle(environment: dict[str, str], nodes: int | None, patience: float) -> bool:
    """Whether all nodes, of which there should be so many, become idle within *patience* seconds."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        told = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%T"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        states = told.stdout.split()
        if states and set(states) == {"idle"} and nodes in (None, len(states)):
            return True
        time.sleep(0.1)
    return False


def _configuration(folder: Path, nodes: int, each: int) -> str:
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
        f"CPUs={each} Boards=1 SocketsPerBoard=1 CoresPerSocket={each} ThreadsPerCore=1 RealMemory=1000000 "
        f"Gres=gpu:{each} State=UNKNOWN",
        f"PartitionName=main Nodes=n[0-{nodes - 1}] Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO",
    ]
    return "\n".join(lines) + "\n"
