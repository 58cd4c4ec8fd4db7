# SPDX-License-Identifier: Apache-2.0
"""Debian's Slurm on this machine: a controller and several nodes, whose processes tests may kill.

Each node is a slurmd of its own (`slurmd -N`); all are on loopback, at free ports, with files in one folder.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support import folders
from tests.support.waiting import until

LOST_AFTER = 60
"""Seconds for which a job that runs may have no slurmstepd: its prologs may take as long."""
PATIENCE = 300
"""Seconds; far more than anything takes that is waited for."""
CPUS = 6
"""CPUs that each node claims to have."""
MESSAGE_TIMEOUT = 30
"""Seconds. Every command of Slurm's waits as long for a slurmctld that does not run."""
CREDENTIAL_LIFETIME = 20
"""Seconds within which a node has to start a job that it was sent, and for which a job waits that is requeued."""
SETTINGS: dict[str, object] = {
    "SlurmUser": "root",
    "SlurmdUser": "root",
    "AuthType": "auth/munge",
    "CredType": "cred/munge",
    "SlurmctldDebug": "info",
    "SlurmdDebug": "info",
    "SlurmdParameters": "config_overrides",
    "ReturnToService": 2,
    "MpiDefault": "none",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "SwitchType": "switch/none",
    "JobAcctGatherType": "jobacct_gather/none",
    "AccountingStorageType": "accounting_storage/none",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_CPU",
    "SchedulerParameters": "batch_sched_delay=0,sched_interval=2,bf_interval=5,default_queue_depth=1000",
    # On a busy machine a message may wait for longer than the 2 s for a connection and 10 s for an answer of Slurm's.
    "TCPTimeout": 30,
    "MessageTimeout": MESSAGE_TIMEOUT,
    "SlurmdTimeout": 30,
    "KillWait": 2,
    "MinJobAge": 5,
    "InactiveLimit": 0,
    "CompleteWait": 0,
    "OverTimeLimit": 0,
}


class Cluster:
    """A Slurm with these nodes, all of whose processes run in the network namespace *netns*."""

    def __init__(self, name: str, nodes: Sequence[str], netns: str) -> None:
        self.name = name
        self.nodes = list(nodes)
        self._enter = ("nsenter", f"--net=/run/netns/{netns}")
        # Not below a folder that only root can enter: the jobs of other users write here.
        self.folder = folders.make("slurm", folders.LARGE)
        self.folder.chmod(0o755)
        for part in ("log", "munge", "state", "spool"):
            (self.folder / part).mkdir(mode=0o755)
        (self.folder / "work").mkdir()
        (self.folder / "work").chmod(0o1777)
        self.environment = {
            **{
                key: value
                for key, value in os.environ.items()
                if not key.startswith(("SLURM_", "OS_"))
            },
            "SLURM_CONF": str(self.folder / "slurm.conf"),
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, settings: Mapping[str, object]) -> None:
        """Start Slurm with *settings* in its slurm.conf, beside those of all tests."""
        ports = range(7000, 7001 + len(self.nodes))  # of a namespace that nobody else uses
        (self.folder / "slurm.conf").write_text(self._configuration(ports, settings))
        self._start_munge()
        self.start_process("slurmctld", "-D", "-i")
        for node in self.nodes:
            (self.folder / "spool" / node).mkdir()
            self.start_node(node)
        self.await_idle()

    def start_node(self, node: str) -> None:
        self.start_process("slurmd", "-D", "-N", node, name=node)

    def start_process(self, *command: str, name: str | None = None) -> None:
        name = name or command[0]
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*self._enter, *command],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self, name: str) -> None:
        """Kill -9 `slurmctld`, or the slurmd of a node, but nothing that it started."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def runs(self, name: str) -> bool:
        """Return whether `slurmctld`, or the slurmd of a node, runs."""
        return name in self._processes and self._processes[name].poll() is None

    def stop(self, name: str) -> None:
        process = self._processes.pop(name)
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def remove(self) -> None:
        """End all processes and remove the files."""
        if "slurmctld" in self._processes:
            self.run("scancel", "--state=RUNNING,PENDING,SUSPENDED", check=False)
        for pid in self.step_processes():
            _kill_quietly(pid)
        for name in [name for name in self._processes if name != "munged"]:
            self.stop(name)
        for pid in self.step_processes():
            _kill_quietly(pid)
        if "munged" in self._processes:
            self.stop("munged")
        shutil.rmtree(self.folder)

    def run(self, *command: str, check: bool = True) -> str:
        """Run one of Slurm's programs; return its output."""
        done = self.call(*command)
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def call(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program where Slurm runs, with *variables* in its environment."""
        return subprocess.run(
            [*self._enter, *command],
            env={**self.environment, **variables},
            cwd=self.folder / "work",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def sbatch(self, script: str, *options: str) -> int:
        """Submit a job; return its id. Its output is in the file of that name in `work`."""
        words = ["sbatch", "--parsable", "--output=%j.out", *options, f"--wrap={script}"]
        return int(self.run(*words).split(";")[0])

    def output(self, job: int) -> str:
        path = self.folder / "work" / f"{job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def states(self) -> dict[str, str]:
        """Return the state of each node, e.g. idle."""
        listed = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False)
        return dict(line.split() for line in listed.splitlines())

    def await_idle(self) -> None:
        """Wait until all nodes are up and have no job, and the epilogs of the last ones have ended."""
        until(lambda: not self.not_idle(), self.while_it_says("all nodes to be idle"), PATIENCE)

    def not_idle(self) -> list[str]:
        """Return what Slurm says of each node that has a job, or is not up: its name, its state, the reason."""
        listed = self.run("sinfo", "-h", "-N", "-o", "%N %T %E", check=False).splitlines()
        return [line for line in listed if line.split()[1] != "idle"] if listed else ["slurmctld"]

    def jobs(self) -> dict[int, str]:
        """Return the state of each job that Slurm still knows."""
        listed = self.run("squeue", "-h", "-r", "-t", "all", "-o", "%A %T")
        return {int(line.split()[0]): line.split()[1] for line in listed.splitlines()}

    def running(self) -> list[int]:
        """Return the jobs that run now."""
        return [job for job, state in self.jobs().items() if state == "RUNNING"]

    def show(self, job: int) -> dict[str, str]:
        """Return what `scontrol show job` says."""
        words = self.run("scontrol", "-o", "show", "job", str(job)).split()
        return dict(word.partition("=")[::2] for word in words)

    def await_state(self, job: int, *states: str) -> str:
        return until(
            lambda: (lambda state: state if state in states else "")(self.jobs().get(job, "GONE")),
            f"job {job} to be {' or '.join(states)}",
            PATIENCE,
        )

    def await_step(self, job: int) -> list[int]:
        """Wait until a node has started a job, after slurmctld says RUNNING; return the pids of its slurmstepd."""
        return until(lambda: self.step_processes(job), f"a slurmstepd of job {job}", PATIENCE)

    def await_end(self) -> None:
        """Wait until each job has ended, or is held because a slurmstepd of it was killed."""
        lost_since: dict[int, float] = {}

        def ended() -> bool:
            self.resume_drained()
            self._cancel_lost(lost_since)
            listed = self.run("squeue", "-h", "-r", "-t", "all", "-o", "%T|%r").splitlines()
            active = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED")
            # The reason is "launch failed requeued held", or JobHeldAdmin after slurmctld was started again.
            return not [
                line for line in listed if line.startswith(active) and "held" not in line.lower()
            ]

        until(ended, self.while_it_says("all jobs to end"), 3 * PATIENCE)

    def _cancel_lost(self, since: dict[int, float]) -> None:
        """Cancel jobs that have had no slurmstepd for `LOST_AFTER` seconds, as an administrator would.

        Slurm has some for running for ever: those that ended before slurmctld was killed, which had not saved it yet.
        *since* is for when each was first seen without.
        """
        now = time.monotonic()
        lost = [job for job in self.running() if not self.step_processes(job)]
        for job in since.keys() - set(lost):
            del since[job]
        for job in lost:
            if now - since.setdefault(job, now) > LOST_AFTER:
                self.run("scancel", str(job), check=False)

    def forget_jobs(self, next_job: int) -> None:
        """Have slurmctld, which was killed, start without its jobs, and give *next_job* to the next one."""
        for name in ("job_state", "job_state.old"):
            (self.folder / "state" / name).unlink(missing_ok=True)
        path = self.folder / "slurm.conf"
        before = path.read_text()
        path.write_text(f"{before}FirstJobId={next_job}\n")
        self.start_process("slurmctld", "-D", "-i")
        until(self.states, "slurmctld to answer")
        path.write_text(before)

    def while_it_says(self, what: str) -> Callable[[], str]:
        """Return a function that names *what* is waited for and says what Slurm has instead."""
        return lambda: f"{what}, while Slurm has {self.not_idle()} and {self.jobs()}"

    def resume_drained(self) -> None:
        """Have nodes that Slurm has drained, because a test killed parts of it, take jobs again.

        No prolog and no epilog that failed may be the reason. "Prolog error" is also said of a node that was never
        told to call a job's prolog, because slurmctld was killed before it said so.
        """
        for line in self.not_idle():
            node, *state = line.split(maxsplit=2)
            if state and state[0].startswith("drain"):
                assert self._failed_programs(node) == [], line
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)

    def _failed_programs(self, node: str) -> list[str]:
        """Return what slurmd has logged of prologs and epilogs of *node* that did not exit with 0."""
        log = (self.folder / "log" / f"slurmd.{node}.log").read_text(errors="replace")
        return [line for line in log.splitlines() if "log failed status=" in line]

    def step_processes(self, job: int | None = None, node: str | None = None) -> list[int]:
        """Return the pids of the slurmstepd processes of this cluster, or of one *job* or *node* of it."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_bytes().decode(errors="replace")
                variables = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            title, _, step = command.rstrip("\0 ").partition(" ")
            if title != "slurmstepd:" or f"SLURM_CONF={self.folder}/slurm.conf" not in variables:
                continue
            of_job = job is None or step.startswith((f"[{job}.", f"[{job}]"))
            if of_job and (node is None or f"SLURMD_NODENAME={node}" in variables):
                found.append(int(folder.name))
        return found

    def programs(self, program: str, job: int) -> list[int]:
        """Return the pids of `gsaas slurm PROGRAM` for a job."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                variables = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if (
                words[2:4] == ["slurm", program]
                and f"SLURM_JOB_ID={job}" in variables
                and f"SLURM_CONF={self.folder}/slurm.conf" in variables
            ):
                found.append(int(folder.name))
        return found

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o400)
        key.write_bytes(os.urandom(1024))
        self.start_process(
            *("munged", "--foreground", "--force", f"--key-file={key}", "--num-threads=4"),
            *(f"--socket={self.folder}/munge/socket", f"--pid-file={self.folder}/munge/pid"),
            *(f"--log-file={self.folder}/munge/log", f"--seed-file={self.folder}/munge/seed"),
        )
        until((self.folder / "munge" / "socket").exists, "munged to start")

    def _configuration(self, ports: Sequence[int], settings: Mapping[str, object]) -> str:
        """Return the content of slurm.conf."""
        here = socket.gethostname()
        own = {
            "ClusterName": self.name,
            "SlurmctldHost": f"{here}(127.0.0.1)",
            "SlurmctldPort": ports[0],
            "AuthInfo": f"socket={self.folder}/munge/socket,cred_expire={CREDENTIAL_LIFETIME}",
            "StateSaveLocation": self.folder / "state",
            "SlurmdSpoolDir": f"{self.folder}/spool/%n",
            "SlurmctldPidFile": f"{self.folder}/slurmctld.pid",
            "SlurmdPidFile": f"{self.folder}/slurmd.%n.pid",
            "SlurmctldLogFile": f"{self.folder}/log/slurmctld.log",
            "SlurmdLogFile": f"{self.folder}/log/slurmd.%n.log",
        }
        lines = [f"{name}={value}" for name, value in {**SETTINGS, **own, **settings}.items()]
        lines += [
            f"NodeName={node} NodeHostname={here} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} Boards=1 "
            f"SocketsPerBoard=1 CoresPerSocket={CPUS} ThreadsPerCore=1 RealMemory=100000 State=UNKNOWN"
            for node, port in zip(self.nodes, ports[1:], strict=True)
        ]
        nodes = f"Nodes={','.join(self.nodes)} MaxTime=INFINITE State=UP"
        lines += [
            f"PartitionName=main {nodes} Default=YES",
            f"PartitionName=hidden {nodes} Hidden=YES",
        ]
        return "\n".join(lines) + "\n"


def missing() -> str | None:
    """Return why Slurm cannot run on this machine; None if it can."""
    programs = ("slurmctld", "slurmd", "sbatch", "munged", "gcc")
    absent = [program for program in programs if shutil.which(program) is None]
    if absent:
        return f"there is no {', '.join(absent)}; ./dev test slurm installs it"
    return None if os.geteuid() == 0 else "its nodes need root"


def _kill_quietly(pid: int) -> None:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        time.sleep(0)
