# SPDX-License-Identifier: Apache-2.0
"""A small cloud in network namespaces: one compute host, three VMs, two GPU hosts, two networks.

VMs 1 and 2 belong to different tenants and have the same IP *and* the same MAC. VM 3 sits on VM 1's
network. Names carry the process id, so several labs can stand side by side.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gsaas.objects.address import Address
from gsaas.objects.binding import Binding
from tests.support.waiting import PATIENCE

PEERS = str(Path(__file__).with_name("peers.py"))
GPU_HOSTS = {"g1": "192.168.50.11", "g2": "192.168.50.12"}
COMPUTE_IP = "192.168.50.1"
PORT = 8308
A, B = Address("169.254.71.1", PORT), Address("169.254.71.2", PORT)
G1, G2 = Address(GPU_HOSTS["g1"], PORT), Address(GPU_HOSTS["g2"], PORT)
G2_OTHER = Address(GPU_HOSTS["g2"], PORT + 1)
VMS = {
    "vm1": ("tap11111111-11", "br-a", "10.0.0.5", "fa:16:3e:00:00:05"),
    "vm2": ("tap22222222-22", "br-b", "10.0.0.5", "fa:16:3e:00:00:05"),
    "vm3": ("tap33333333-33", "br-a", "10.0.0.6", "fa:16:3e:00:00:06"),
}

T = TypeVar("T")


def eventually(what: Callable[[], T], seconds: float = PATIENCE) -> T:
    """*what*() as soon as it is true; `AssertionError` with its last value after *seconds*."""
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline, f"still {value!r} after {seconds} s"
        time.sleep(0.01)
    return value


def binding(vm: str, mappings: dict[Address, Address], **changes: Any) -> Binding:
    tap, _, ip, mac = VMS[vm]
    values = {"port_id": f"port-{vm}", "lease_id": f"lease-{vm}", "tap": tap, "mac": mac, "ip": ip}
    return Binding(**{**values, "mappings": mappings, **changes})


USUAL = {"vm1": {A: G1, B: G2_OTHER}, "vm2": {A: G2}, "vm3": {}}
"""What every VM may reach, unless a test changes it."""


class Peer:
    """A program of `peers.py` in a namespace."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self) -> str:
        """Its next line of output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def signal(self) -> None:
        """Let it proceed, if it waits for a signal."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)

    def rest(self) -> list[str]:
        """Its remaining lines, once it has ended."""
        return self.process.communicate(timeout=PATIENCE)[0].split("\n")[:-1]


class Lab:
    def __init__(self, prefix: str = "rodvr") -> None:
        """*prefix* distinguishes labs of one process."""
        self._prefix = f"{prefix}{os.getpid()}-"
        self._peers: list[subprocess.Popen[str]] = []
        self.compute = self.name("cmp")

    def name(self, place: str) -> str:
        return self._prefix + place

    # -- commands

    def ip(self, place: str, command: str) -> None:
        """Run `ip` commands, separated by `;`, in a namespace."""
        lines = "\n".join(part.strip() for part in command.split(";"))
        _call(["ip", "-n", self.name(place), "-batch", "-"], lines)

    def ip_json(self, place: str, command: str) -> Any:
        return json.loads(_call(["ip", "-n", self.name(place), "-j", *command.split()]) or "[]")

    def run(self, place: str, *command: str, check: bool = True) -> str:
        return _call(["ip", "netns", "exec", self.name(place), *command], check=check)

    def feed(self, place: str, text: str, *command: str) -> str:
        """Run a command that reads *text*."""
        return _call(["ip", "netns", "exec", self.name(place), *command], text)

    def nft(self, command: str, *, check: bool = True) -> str:
        return self.run("cmp", "nft", *command.split(), check=check)

    def ruleset(self) -> list[dict[str, Any]]:
        return json.loads(self.nft("-j list ruleset"))["nftables"]

    def elements(self, family: str, name: str) -> list[Any]:
        listed = json.loads(self.nft(f"-j list set {family} rodvr {name}"))["nftables"]
        return next(entry["set"] for entry in listed if "set" in entry).get("elem", [])

    def map_elements(self, family: str, name: str) -> list[Any]:
        listed = json.loads(self.nft(f"-j list map {family} rodvr {name}"))["nftables"]
        return next(entry["map"] for entry in listed if "map" in entry).get("elem", [])

    def counter(self, family: str, chain: str, rule: int) -> int:
        """The packets that one rule of a chain has counted; 0 is the first rule, -1 the last."""
        listed = json.loads(self.nft(f"-j list chain {family} rodvr {chain}"))["nftables"]
        rules = [entry["rule"] for entry in listed if "rule" in entry]
        return next(e["counter"]["packets"] for e in rules[rule]["expr"] if "counter" in e)

    def connections(self, *filters: str) -> list[str]:
        return self.run("cmp", "conntrack", "-L", *filters, check=False).splitlines()

    def track(self, connection: str) -> None:
        """Have the compute host track a TCP connection that does not exist; options of conntrack say between whom."""
        words = f"-I -p tcp {connection} --state ESTABLISHED --timeout 300"
        self.run("cmp", "conntrack", *words.split())

    def sysctl(self, place: str, key: str, value: object | None = None) -> str:
        """Read a setting (a path under net/), after writing *value* if one is given."""
        if value is not None:
            self.run(place, "sh", "-c", f"echo {value} > /proc/sys/net/{key}")
        return self.run(place, "cat", f"/proc/sys/net/{key}").strip()

    def ask(self, vm: str, masked: Address, *, source: str = "", seconds: float = 3.0) -> str:
        """The daemon's first line, or the name of the error."""
        arguments = ["ask", masked.ip, str(masked.port), source, str(seconds)]
        return self.run(vm, sys.executable, "-SE", PEERS, *arguments).strip()

    def reaches(self, vm: str, masked: Address) -> str:
        """The daemon (`g1:8308`) that answers at *masked*, or the name of the error."""
        return self.ask(vm, masked).split(" ")[0]

    def transfer(self, vm: str, masked: Address, mib: int) -> str:
        arguments = ["transfer", masked.ip, str(masked.port), str(mib)]
        return self.run(vm, sys.executable, "-SE", PEERS, *arguments).strip()

    def talk(
        self,
        vm: str,
        masked: Address,
        count: int = 500,
        *,
        source_port: int = 0,
        source: str = "",
    ) -> Peer:
        return self._start(vm, "talk", masked.ip, masked.port, count, source_port, source)

    def send_on_signal(self, vm: str, masked: Address, *, source: str = "") -> Peer:
        """A connection whose client sends something when it gets a signal."""
        return self._start(vm, "send_on_signal", masked.ip, masked.port, source)

    def wait(self, vm: str, masked: Address, *, source: str = "") -> Peer:
        """A connection whose client sends nothing."""
        return self._start(vm, "wait", masked.ip, masked.port, source)

    def ping(self, place: str, address: str, seconds: float = 3.0) -> bool:
        command = [sys.executable, "-SE", PEERS, "ping", address, str(seconds)]
        return self.run(place, *command).strip() == "answered"

    def established(self, place: str, port: int) -> set[str]:
        """The connections that the daemon at *port* has."""
        words = ("-Htn", "state", "established", "sport", "=", f":{port}")
        return set(self.run(place, "ss", *words).splitlines())

    def daemon(self, place: str, name: str, *ports: int) -> Peer:
        peer = self._start(place, "daemon", name, *ports)
        assert peer.line() == "ready"
        return peer

    def _start(self, place: str, *arguments: object) -> Peer:
        return self.start(place, sys.executable, "-SE", PEERS, *map(str, arguments))

    def start(self, place: str, *command: str) -> Peer:
        """Start a program in a namespace. It ends with the lab at the latest."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name(place), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._peers.append(process)
        return Peer(process)

    @contextmanager
    def watching_routes(self) -> Iterator[Callable[[], list[str]]]:
        """Gives a function that returns how routes, neighbours and RODVR's links changed until now."""
        process = subprocess.Popen(
            ["ip", "-n", self.compute, "monitor", "route", "neigh", "link"],
            stdout=subprocess.PIPE,
            text=True,
        )
        reader = process.stdout
        assert reader is not None

        def changes() -> list[str]:
            """Adds a route: once it is reported, all changes before it are."""
            lines: list[str] = []
            while not any("203.0.113.1" in line for line in lines):
                self.ip("cmp", "route add blackhole 203.0.113.1; route del blackhole 203.0.113.1")
                while select.select([reader], [], [], 0.2)[0]:
                    lines.append(reader.readline().strip())
            return [line for line in lines if "rodvr" in line or "240.71" in line]

        try:
            changes()
            yield changes
        finally:
            process.terminate()
            process.communicate()

    # -- building

    def up(self) -> None:
        for place in ("sw", "cmp", *VMS, *GPU_HOSTS):
            _call(["ip", "netns", "add", self.name(place)])
            self.ip(place, "link set lo up")
            # A new namespace has the setting of the host, where other programs may have enabled forwarding.
            self.sysctl(place, "ipv4/ip_forward", 0)
        self.ip("sw", "link add gpunet type bridge; link set gpunet up")
        self._join_gpu_network("cmp", "gpu0", COMPUTE_IP)
        for place, address in GPU_HOSTS.items():
            self._join_gpu_network(place, "eth0", address)
            self.daemon(place, place, PORT, PORT + 1)
        for bridge in ("br-a", "br-b"):
            self.ip("cmp", f"link add {bridge} type bridge; link set {bridge} up")
        self.ip("cmp", "addr add 10.0.0.1/24 dev br-a")
        for vm in VMS:
            self.boot(vm)

    def boot(self, vm: str) -> None:
        """Give *vm* its tap and network card, as a hypervisor does at every start."""
        tap, bridge, ip, mac = VMS[vm]
        self.plug(vm)
        self.ip("cmp", f"link set {tap} master {bridge} up")
        self.ip(
            vm,
            f"link set eth0 address {mac}; addr add {ip}/24 dev eth0; link set eth0 up;"
            "route add default via 10.0.0.1; route add 169.254.71.0/24 dev eth0 scope link",
        )

    def plug(self, vm: str) -> None:
        """Only create the tap."""
        self.ip("cmp", f"link add {VMS[vm][0]} type veth peer name eth0 netns {self.name(vm)}")

    def unplug(self, vm: str) -> None:
        self.ip("cmp", f"link del {VMS[vm][0]}")

    def index(self, device: str, place: str = "cmp") -> int:
        return self.ip_json(place, f"link show dev {device}")[0]["ifindex"]

    def down(self) -> None:
        for process in self._peers:
            process.terminate()
            process.communicate()
        for place in ("cmp", *VMS, *GPU_HOSTS, "sw"):
            _call(["ip", "netns", "del", self.name(place)], check=False)

    def _join_gpu_network(self, place: str, device: str, address: str) -> None:
        peer = f"to-{place}"
        self.ip(place, f"link add {device} type veth peer name {peer} netns {self.name('sw')}")
        self.ip("sw", f"link set {peer} master gpunet up")
        self.ip(place, f"addr add {address}/24 dev {device}; link set {device} up")


def _call(command: list[str], text: str | None = None, *, check: bool = True) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class RulesetMonitor:
    """What `nft monitor` sees change in the compute host's tables."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", lab.compute, "nft", "monitor"],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._marks = 0

    def __enter__(self) -> RulesetMonitor:
        self._marked()
        return self

    def changes(self) -> list[str]:
        """Since the last call."""
        return [line for line in self._marked() if not line.startswith("#")]

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def _marked(self) -> list[str]:
        """Lines before a change that this makes, which is repeated until the monitor listens."""
        assert self._process.stdout is not None
        self._marks += 1
        name = f"mark{self._marks}"
        reader = self._process.stdout
        lines: list[str] = []
        while f"add table ip {name}" not in lines:
            self._lab.nft(f"add table ip {name}")
            self._lab.nft(f"delete table ip {name}")
            while select.select([reader], [], [], 0.2)[0]:
                lines.append(reader.readline().strip())
                if lines[-1] == f"delete table ip {name}":
                    break
        return [line for line in lines if "table ip mark" not in line]
