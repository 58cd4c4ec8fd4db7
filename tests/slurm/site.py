# SPDX-License-Identifier: Apache-2.0
"""A gsaas-standalone and a Slurm, configured for each other as doc/slurm.md says.

All of Slurm runs in the network namespace of one of the cloud's hosts, so its jobs reach GPUs over the GPU network.
That host has a RODVR endpoint: on the node that is called as it is, jobs get masked addresses. GSaaS does not know the
hosts of the other nodes: their jobs get real addresses, and the prolog redeems their grants.
"""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.kernel.standalone.cloud import Cloud
from tests.slurm.cluster import PATIENCE, Cluster
from tests.slurm.relay import Relay
from tests.support.waiting import until

SOURCES = Path(__file__).parents[2] / "client/slurm"
HOST = "compute1"
NODES = ("n0", "n1", "n2", HOST)
WAIT = 8
"""Seconds for which a job waits with its nodes."""
GRACE = 2
"""Seconds after which an epilog looks for what other jobs have left."""
CONFIGURATION = """\
[queue]
client_timeout = 5
long_polls = 100
[remoting]
cpu_driver = tvm
[daemons]
start_timeout = 240
[standalone]
inventory = {inventory}
"""
CPU_HOST = """\
[[hosts]]
name = "cpu1"
gpu_address = "192.168.50.13"
compute = false
kind = "cpu"
gpus = 2
memory_mb = 1024
"""
"""What the cloud has besides the hosts that it has anyway. Jobs compute there."""
INVENTORY = Path(__file__).parents[2] / "etc/gsaas/inventory.toml"
TENANT = "-demo"
SCRIPT = "from gsaasclient.cli.main import main\n\nraise SystemExit(main())\n"
ONE_CGPU = ("--cgpus=1", "--poolmem=4G")
"""Half a GPU: there are fewer of them than Slurm has CPUs."""
WHOLE_GPUS = 8


class Site:
    """Both of them, and what an operator installs so that the one serves the other."""

    def __init__(self, cloud: Cloud, name: str, plugin: Path) -> None:
        self.cloud = cloud
        self.slurm = Cluster(name, NODES, cloud.prefix + HOST)
        self._relay = Relay(cloud.prefix + HOST, self._api)
        self.folder = self.slurm.folder / "gsaas"
        self.folder.mkdir(mode=0o755)
        self.environments = self.folder / "environments"
        self._install(plugin)

    def start(self) -> None:
        self.slurm.start(
            {
                "PlugStackConfig": self.folder / "plugstack.conf",
                "PrologSlurmctld": self.folder / "prolog-slurmctld",
                "Prolog": self.folder / "prolog",
                "Epilog": self.folder / "epilog",
                "PrologFlags": "Alloc",
            }
        )

    def remove(self) -> None:
        self.slurm.remove()
        self._relay.close()

    def gsaas(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `gsaas` as the operator of the cluster."""
        credentials = str(self.folder / "credentials.json")
        return self.slurm.call(str(self.folder / "gsaas"), *words, GSAAS_CREDENTIALS=credentials)

    def reconcile(self, grace: int = 0) -> list[str]:
        """Run `gsaas slurm reconcile`; return the names of the leases that it released."""
        state = f"-state={self.folder / 'state'}"
        done = self.gsaas("slurm", "reconcile", f"-grace={grace}", state)
        assert done.returncode == 0, done.stderr
        return [line.partition(", ")[2] for line in done.stdout.splitlines()]

    def leases(self) -> list[dict[str, Any]]:
        """Return the leases that are not released, of all projects, as an administrator sees them."""
        status, body = self.cloud.call("GET", "/v1/leases?all_projects=true")
        assert status == 200, body
        return [lease for lease in body["leases"] if lease["status"] != "RELEASING"]

    def leases_of(self, job: int) -> dict[str, dict[str, Any]]:
        """Return the leases of a job, by node."""
        beginning = f"slurm/{self.slurm.name}/{job}."
        named = [lease for lease in self.leases() if lease["name"].startswith(beginning)]
        return {lease["name"].rpartition("/")[2]: lease for lease in named}

    def await_leases(self, job: int, *statuses: str) -> dict[str, dict[str, Any]]:
        """Wait until a job has leases and all of them have one of these statuses; return them by node."""

        def look() -> dict[str, dict[str, Any]]:
            found = self.leases_of(job)
            return found if {lease["status"] for lease in found.values()} <= set(statuses) else {}

        return until(look, f"leases of job {job}")

    def await_release(self, jobs: Iterable[int]) -> None:
        for job in jobs:
            until(lambda job=job: not self.leases_of(job), f"the cGPUs of job {job} to be released")

    def left(self) -> list[str]:
        """Return the names of the environments that nodes have."""
        return [path.name for path in self.environments.glob("*")]

    def remove_left(self) -> None:
        """Run a job on every node until its epilogs have removed what ended jobs without an epilog have left."""

        def look() -> bool:
            if self.left():
                self.slurm.call("srun", f"--nodes={len(NODES)}", *ONE_CGPU, "true")
                self.slurm.await_idle()
            return not self.left()

        until(look, "what ended jobs have left to be removed", PATIENCE)

    def take(self, gpus: int) -> dict[str, Any]:
        """Claim whole GPUs beside Slurm; return the lease."""
        lease = {"cgpus": {"count": gpus}, "server": None}
        status, body = self.cloud.call("POST", "/v1/leases", {"lease": lease})
        assert status == 201, body
        return body["lease"]

    def boot(self, node: str) -> None:
        """Start a node that died; the boot of its host empties /run."""
        for path in self.environments.glob(f"*.{node}"):
            path.unlink()
        self.slurm.start_node(node)

    def start_dead_nodes(self) -> None:
        """Start the slurmd of each node that has none, and wait until Slurm has all nodes again."""
        for node in NODES:
            if not self.slurm.runs(node):
                self.boot(node)

        def idle() -> bool:
            self.slurm.resume_drained()
            return not self.slurm.not_idle()

        until(idle, self.slurm.while_it_says("all nodes to be idle"), PATIENCE)

    def restore(self) -> None:
        """End all jobs and have everything run again."""
        if self.cloud.process is None:
            self.cloud.start()
        # A test that failed may have left it stopped.
        self.cloud.process.send_signal(signal.SIGCONT)
        if not self.slurm.runs("slurmctld"):
            self.slurm.start_process("slurmctld", "-D")
        self.slurm.run("scancel", "--user=root")
        self.slurm.run("scancel", "--user=nobody")
        self.start_dead_nodes()
        self.slurm.await_end()
        self.reconcile()

    def check_nothing_is_leaked(self) -> None:
        """Ask the API, the kernel and the database whether anything is claimed, or was left behind."""
        self.await_release([0])
        until(lambda: not self.leases(), "all leases to be released")
        until(lambda: self.claims() == 0, "all claims to be deleted")
        self.cloud.check_nothing_is_leaked([])
        left = self.left()
        assert left == [], f"environments were left: {left}"

    def claims(self) -> int:
        """Return how many claims the database has."""
        with closing(
            sqlite3.connect(f"file:{self.cloud.state_dir}/gsaas.db?mode=ro", uri=True)
        ) as db:
            (count,) = db.execute("SELECT count(*) FROM claims").fetchone()
        return count

    def _api(self) -> tuple[str, int]:
        url = json.loads((self.cloud.state_dir / "credentials.json").read_text())["url"]
        return urlsplit(url).hostname, urlsplit(url).port

    def _install(self, plugin: Path) -> None:
        """Install what doc/slurm.md says, in this site's folder instead of /etc/gsaas and /opt/gsaas."""
        gsaas = self.folder / "gsaas"
        gsaas.write_text(f"#!{sys.executable}\n{SCRIPT}")
        gsaas.chmod(0o755)
        token = json.loads((self.cloud.state_dir / f"credentials{TENANT}.json").read_text())[
            "token"
        ]
        self._write_private(
            "credentials.json",
            json.dumps({"url": f"http://127.0.0.1:{self._relay.port}", "token": token}),
        )
        self._write_private(
            "slurm.env",
            f"GSAAS_CREDENTIALS={self.folder}/credentials.json\nGSAAS={gsaas}\nPATH=/usr/bin:/bin\n"
            f"GSAAS_WAIT={WAIT}\nGSAAS_FOLDER={self.environments}\nGSAAS_GRACE={GRACE}\n"
            f"SLURM_CONF={self.slurm.folder}/slurm.conf\n",
        )
        for name in ("prolog-slurmctld", "prolog", "epilog"):
            text = (SOURCES / name).read_text()
            assert "/etc/gsaas/slurm.env" in text
            (self.folder / name).write_text(
                text.replace("/etc/gsaas/slurm.env", str(self.folder / "slurm.env"))
            )
            shutil.copymode(SOURCES / name, self.folder / name)
        (self.folder / "plugstack.conf").write_text(
            f"required {plugin} folder={self.environments}\n"
        )

    def _write_private(self, name: str, text: str) -> None:
        (self.folder / name).touch(mode=0o600)
        (self.folder / name).write_text(text)
