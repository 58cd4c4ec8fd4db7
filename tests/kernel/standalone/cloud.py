# SPDX-License-Identifier: Apache-2.0
"""A real gsaas-standalone: tests send it HTTP requests, and inspect its namespaces with iproute2 and nftables."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gsaas.netlink.namespace import entered
from tests.support.waiting import PATIENCE, until

COUNTER = itertools.count()
COMMAND = [sys.executable, "-m", "gsaas.cli.standalone"]
CONFIGURATION = """
[engine]
audit_interval = 0.5
[rodvr]
audit_interval = 1
[grants]
gate_port = 8300
"""
HOSTS = ("gpu1", "gpu2", "compute1")

READ_GREETING = """
import json, socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as connection:
        print(connection.makefile().readline())
except OSError as error:
    print(json.dumps({"error": type(error).__name__, "errno": error.errno}))
"""

KEEP_CONNECTION = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=240) as connection:
    lines = connection.makefile()
    lines.readline()
    print("connected", flush=True)
    try:
        print("closed" if not lines.readline() else "answered")
    except OSError as error:
        print(type(error).__name__)
"""


def ip(*arguments: str) -> Any:
    """Return the decoded output of `ip -j`."""
    done = subprocess.run(["ip", "-j", *arguments], check=True, capture_output=True, text=True)
    return json.loads(done.stdout or "[]")


def namespaces() -> list[str]:
    return [row["name"] for row in ip("netns", "list")]


def ruleset(netns: str) -> list[dict]:
    """Return the decoded output of `nft -j list ruleset` inside a namespace."""
    command = ["ip", "netns", "exec", netns, "nft", "-j", "list", "ruleset"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["nftables"]


class Cloud:
    """One gsaas-standalone on a state directory and a prefix of its own."""

    def __init__(self, folder: Path, home: str | None = None) -> None:
        """*home* is the network namespace that the process runs in; None for the machine's own."""
        self.home = home
        self.state_dir = folder / "state"
        self.prefix = f"t{os.getpid()}x{next(COUNTER)}-"
        self.config = folder / "gsaas.conf"
        self.config.write_text(CONFIGURATION, encoding="utf-8")
        self.log = folder / "log"
        self.process: subprocess.Popen | None = None
        self.environment: dict[str, str] = {}
        """Added to that of the tests."""

    def command(self, *more: str) -> list[str]:
        wrapper = ["nsenter", f"--net=/run/netns/{self.home}"] if self.home else []
        return [
            *wrapper,
            *COMMAND,
            f"--state-dir={self.state_dir}",
            f"--prefix={self.prefix}",
            f"--config-file={self.config}",
            "--listen=127.0.0.1:0",
            f"--log-file={self.log}",
            "--debug",
            *more,
        ]

    def run(self, *more: str, wrapper: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
        """Run the program until it ends."""
        command = [*wrapper, *self.command(*more)]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)

    def start(self) -> None:
        with_the_tests = ("setpriv", "--pdeathsig=KILL", "--")  # it ends, however these end
        self.process = subprocess.Popen(
            [*with_the_tests, *self.command()],
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        assert line.startswith("ready: http://127.0.0.1:"), line + self.process.stderr.read()

    def kill(self) -> None:
        """Send SIGKILL, as the kernel does when memory is short."""
        self.process.kill()
        self._reap()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self._reap() == 0

    def remove(self) -> None:
        """End the process and remove everything, whatever a test did."""
        if self.process is not None:
            self.kill()
        assert self.run("--clean").returncode == 0

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        user: str = "",
        token: str | None = None,
        version: str = "1.0",
    ) -> tuple[int, Any]:
        """Send a request to the API; return HTTP status and body."""
        credentials = json.loads((self.state_dir / f"credentials{user}.json").read_text())
        headers = {
            "X-Auth-Token": token or credentials["token"],
            "Content-Type": "application/json",
            "OpenStack-API-Version": f"gpu-scheduling {version}",
        }
        address = urlsplit(credentials["url"])
        with entered(self.home):
            connection = http.client.HTTPConnection(
                address.hostname, address.port, timeout=PATIENCE
            )
            connection.connect()
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.load(answer)

    def request_lease(self, **cgpus: Any) -> dict[str, Any]:
        """Request a lease with a VM, and return it as the API answers at first."""
        status, body = self.call("POST", "/v1/leases", {"lease": {"cgpus": cgpus}})
        assert status == 202, body
        return body["lease"]

    def launch(self, **cgpus: Any) -> dict[str, Any]:
        """Request a lease with a VM, and return it when it is ACTIVE."""
        return self.await_status(self.request_lease(**cgpus), "ACTIVE")

    def terminate(self, lease: dict[str, Any]) -> dict[str, Any]:
        self.request_release(lease)
        return self.await_status(lease, "RELEASED")

    def request_release(self, lease: dict[str, Any]) -> None:
        """Request the release of a lease; the process may be killed meanwhile."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, body = self.call("DELETE", f"/v1/leases/{lease['id']}")
            assert status == 202, body

    def lease(self, lease: dict[str, Any]) -> dict[str, Any]:
        status, body = self.call("GET", f"/v1/leases/{lease['id']}")
        assert status == 200, body
        return body["lease"]

    def await_status(self, lease: dict[str, Any], status: str) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            current = self.lease(lease)
            assert current["status"] == status or current["status"] != "ERROR", current["fault"]
            return current if current["status"] == status else None

        return until(reached, f"lease {lease['id']} to be {status}")

    def vm(self, lease: dict[str, Any]) -> str:
        """Return the name of the namespace of the lease's VM."""
        return f"{self.prefix}vm-{lease['server']['id'][:8]}"

    def vms(self) -> list[str]:
        return [name for name in namespaces() if name.startswith(f"{self.prefix}vm-")]

    def greeting(self, lease: dict[str, Any], address: str) -> dict[str, Any]:
        """Connect to *address* from inside the VM; return the daemon's greeting, or the error."""
        host, _, port = address.rpartition(":")
        command = ["ip", "netns", "exec", self.vm(lease), sys.executable, "-I", "-c", READ_GREETING]
        done = subprocess.run([*command, host, port], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    def keep_connection(self, lease: dict[str, Any], address: str) -> subprocess.Popen:
        """Start a program in the VM that keeps a connection; its last line of output says how that ended."""
        host, _, port = address.rpartition(":")
        command = [
            "ip",
            "netns",
            "exec",
            self.vm(lease),
            sys.executable,
            "-I",
            "-c",
            KEEP_CONNECTION,
        ]
        program = subprocess.Popen([*command, host, port], stdout=subprocess.PIPE, text=True)
        assert program.stdout.readline() == "connected\n"
        return program

    def check_reach(self, lease: dict[str, Any]) -> None:
        """Check that behind each masked address exactly the claimed GPU answers."""
        for device in lease["devices"]:
            answer = self.greeting(lease, device["masked_address"])
            assert answer.get("gpu") == device["gpu_uuid"], answer
            assert answer["host"] == device["gpu_host"]

    def mappings(self) -> list[str]:
        """Return the real addresses in the nftables maps of all hosts, sorted."""
        found = []
        for host in HOSTS:
            # Not the whole ruleset: nft 1.0.6 cannot print a table as JSON whose owner has ended.
            command = ["ip", "netns", "exec", self.prefix + host, "nft", "-j"]
            listed = subprocess.run(
                [*command, "list", "map", "ip", "rodvr", "real"],
                check=False,
                capture_output=True,
                text=True,
            )
            for item in json.loads(listed.stdout or "{}").get("nftables", []):
                for _, value in item.get("map", {}).get("elem", []):
                    real, port = value["concat"]
                    found.append(f"{real}:{port}")
        return sorted(found)

    def taps(self) -> list[str]:
        links = [link for host in HOSTS for link in ip("-n", self.prefix + host, "link")]
        return [link["ifname"] for link in links if link["ifname"].startswith("tap")]

    def check_nothing_is_leaked(self, active: list[dict[str, Any]]) -> None:
        """Check that there is everything of the *active* leases, and nothing else."""
        assert sorted(self.vms()) == sorted(self.vm(lease) for lease in active)
        until(lambda: len(self.taps()) == len(active), "the taps of deleted VMs to go")
        real = [device["real_address"] for lease in active for device in lease["devices"]]
        assert self.mappings() == sorted(real)
        _, body = self.call("GET", "/v1/gpus")
        claimed = {gpu["uuid"]: sorted(gpu["leases"]) for gpu in body["gpus"] if gpu["leases"]}
        expected: dict[str, set[str]] = {}
        for lease in active:
            for device in lease["devices"]:
                expected.setdefault(device["gpu_uuid"], set()).add(lease["id"])
        assert claimed == {uuid: sorted(ids) for uuid, ids in expected.items()}
        records = {path.stem for path in (self.state_dir / "servers").glob("*.json")}
        assert records == {lease["id"] for lease in active}

    def _reap(self) -> int:
        process, self.process = self.process, None
        process.communicate(timeout=PATIENCE)
        return process.returncode
