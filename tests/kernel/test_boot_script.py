# SPDX-License-Identifier: Apache-2.0
"""What GSaaS installs in a server, run as it is, in network namespaces that stand for servers.

Asked afterwards is `ip -j`, not the scripts. Each runs under the system's shell and under busybox.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gsaas.cloudinit.boot import boothook, route_script
from gsaas.cloudinit.environment import shell_exports
from tests.support import pam
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.kernel

PREFIX = "169.254.71.0/24"
ENV = {"RCUDA_DEVICE_COUNT": "1", "RCUDA_DEVICE_0": "169.254.71.1:0", "LD_LIBRARY_PATH": "/opt/lib"}
serial = itertools.count()


class Server:
    """A network namespace, and the commands that its scripts find."""

    def __init__(self, folder: Path, shell: list[str], path: str) -> None:
        self.name = f"gsaas-boot-{os.getpid()}-{next(serial)}"
        self.folder = folder
        self._shell = shell
        self._env = {"PATH": path}
        self._wires = f"{self.name}-wires"
        """Where the other ends of its interfaces are."""
        for namespace in (self.name, self._wires):
            subprocess.run(["ip", "netns", "add", namespace], check=True)

    def remove(self) -> None:
        for namespace in (self.name, self._wires):
            subprocess.run(["ip", "netns", "delete", namespace], check=True)

    def ip(self, words: str) -> None:
        subprocess.run(["ip", "-n", self.name, *words.split()], check=True)

    def add_nic(self, name: str, up: bool = True) -> None:
        self.ip(f"link add {name} type veth peer name {name} netns {self._wires}")
        if up:
            self.ip(f"link set {name} up")

    def start(self, script: str, *, before: str = "") -> subprocess.Popen[str]:
        """Start *script*; *before* prepares the mount namespace that it and `ip netns exec` get."""
        path = self.folder / "script"
        path.write_text(script)
        shell = " ".join([*self._shell, str(path)])
        command = f"{before}\nexec {shell}" if before else f"exec {shell}"
        return subprocess.Popen(
            [shutil.which("ip"), "netns", "exec", self.name, "/bin/sh", "-ec", command],
            env=self._env,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: str, *, before: str = "") -> tuple[int, str]:
        """Exit status and stderr of *script*."""
        process = self.start(script, before=before)
        _, complaint = process.communicate(timeout=PATIENCE)
        return process.returncode, complaint

    def routes(self) -> list[tuple[str, str]]:
        """Destination and device of every route in the main table."""
        found = subprocess.run(
            ["ip", "-n", self.name, "-j", "route"], capture_output=True, check=True
        ).stdout
        return [(route["dst"], route["dev"]) for route in json.loads(found)]


@pytest.fixture(params=["sh", "busybox"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "busybox":
        busybox = shutil.which("busybox")
        assert busybox, "busybox is missing: install the Debian package busybox"
        applets = tmp_path / "applets"
        applets.mkdir()
        subprocess.run([busybox, "--install", "-s", str(applets)], check=True)
        made = Server(tmp_path, [busybox, "sh"], str(applets))
    else:
        made = Server(tmp_path, ["/bin/sh"], "/usr/sbin:/usr/bin:/sbin:/bin")
    yield made
    made.remove()


def test_the_route_goes_through_the_interface_that_came_first(server: Server):
    for name in ("zz0", "aa0", "mm0"):
        server.add_nic(name)

    assert server.run(route_script(PREFIX, wait=0)) == (0, "")

    assert server.routes() == [(PREFIX, "zz0")]


def test_the_route_is_on_the_link_and_marked_so_that_network_managers_leave_it(server: Server):
    server.add_nic("eth0")
    server.run(route_script(PREFIX, wait=0))

    shown = subprocess.run(
        ["ip", "-n", server.name, "-j", "-d", "route", "show", PREFIX],
        capture_output=True,
        check=True,
    ).stdout
    (route,) = json.loads(shown)
    assert "gateway" not in route
    assert (route["scope"], route["protocol"]) == ("link", "kernel")


def test_a_server_without_gateway_reaches_masked_addresses_from_its_own_address(server: Server):
    server.add_nic("eth0")
    server.ip("addr add 192.0.2.10/24 dev eth0")
    server.run(route_script(PREFIX, wait=0))

    found = subprocess.run(
        ["ip", "-n", server.name, "-j", "route", "get", "169.254.71.1"],
        capture_output=True,
        check=True,
    ).stdout
    (way,) = json.loads(found)
    assert (way["dev"], way["prefsrc"]) == ("eth0", "192.0.2.10")
    assert "gateway" not in way


def test_other_routes_stay_as_they_are(server: Server):
    for number, name in enumerate(("eth0", "eth1")):
        server.add_nic(name)
        server.ip(f"addr add 192.0.{number}.10/24 dev {name}")
    server.ip("route add default via 192.0.1.1")
    server.ip("route add 169.254.0.0/16 dev eth1")
    before = server.routes()

    server.run(route_script(PREFIX, wait=0))

    assert sorted(server.routes()) == sorted([*before, (PREFIX, "eth0")])


def test_booting_again_changes_nothing_and_a_wrong_route_is_put_right(server: Server):
    server.add_nic("eth0")
    server.add_nic("eth1")
    server.ip(f"route add {PREFIX} dev eth1 proto kernel scope link")

    for _ in range(2):
        assert server.run(route_script(PREFIX, wait=0)) == (0, "")
        assert server.routes() == [(PREFIX, "eth0")]


def test_an_interface_with_a_device_goes_before_older_ones_without(server: Server):
    """veths have no device behind them, so one is given one, in a /sys that only the script sees."""
    for name in ("docker0", "eth0", "eth1"):
        server.add_nic(name)
    indexes = {"docker0": 10, "eth0": 30, "eth1": 20}
    sys_class_net = server.folder / "net"
    for name, index in indexes.items():
        entry = sys_class_net / name
        entry.mkdir(parents=True)
        (entry / "type").write_text("1\n")
        (entry / "ifindex").write_text(f"{index}\n")
        if name != "docker0":
            (entry / "device").mkdir()

    status = server.run(
        route_script(PREFIX, wait=0), before=f"/bin/mount --bind {sys_class_net} /sys/class/net"
    )

    assert status == (0, "")
    assert server.routes() == [(PREFIX, "eth1")]


def test_when_the_first_interface_is_a_port_of_a_bridge_the_bridge_has_the_route(server: Server):
    server.add_nic("eth0")
    server.add_nic("eth1")
    server.ip("link add br0 type bridge")
    server.ip("link set eth0 master br0")
    server.ip("link set br0 up")

    assert server.run(route_script(PREFIX, wait=0)) == (0, "")

    assert server.routes() == [(PREFIX, "br0")]


def test_what_is_not_ethernet_is_no_interface(server: Server):
    server.ip("link set lo up")

    status, complaint = server.run(route_script(PREFIX, wait=0))

    assert status == 1
    assert complaint == (
        f"gsaas-route: {PREFIX} has no route after 0 s: there is no Ethernet interface\n"
    )
    assert server.routes() == []


def test_an_interface_that_is_down_is_named(server: Server):
    server.add_nic("eth0", up=False)

    status, complaint = server.run(route_script(PREFIX, wait=0))

    assert status == 1
    assert f"{PREFIX} has no route after 0 s: eth0: " in complaint


@pytest.mark.parametrize("there", [False, True], ids=["missing", "down"])
def test_a_late_interface_is_waited_for(server: Server, there: bool):
    if there:
        server.add_nic("eth0", up=False)
    waiting = server.start(route_script(PREFIX, wait=240))
    children = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children")
    # Its first command cannot succeed yet.
    until(lambda: children.read_text() or waiting.poll() is not None, "its first command")
    assert waiting.poll() is None

    if not there:
        server.add_nic("eth0", up=False)
    server.ip("link set eth0 up")

    _, complaint = waiting.communicate(timeout=PATIENCE)
    assert (waiting.returncode, complaint) == (0, "")
    assert server.routes() == [(PREFIX, "eth0")]


class Disk:
    """The folders of a server that its scripts write to, each a folder of ours, to look at afterwards."""

    PLACES = ("etc", "usr/local/sbin", "var/lib")

    def __init__(self, root: Path) -> None:
        self.root = root
        for place in self.PLACES:
            (root / place).mkdir(parents=True)
        self.environment = root / "etc" / "environment"
        self.environment.write_text("LANG=C\n")

    def mounts(self) -> str:
        binds = (f"/bin/mount --bind {self.root / place} /{place}\n" for place in self.PLACES)
        return "".join(binds) + "/bin/mount -t tmpfs none /run\n"

    def written(self) -> dict[str, int]:
        """The files, by path, and their modes."""
        found = (path for path in self.root.rglob("*") if path.is_file())
        return {
            f"/{path.relative_to(self.root)}": stat.S_IMODE(path.stat().st_mode) for path in found
        }


def boot(server: Server, disk: Disk, systemd: bool) -> tuple[int, str]:
    """Run the whole boothook on a disk of its own."""
    hook = boothook(ENV, PREFIX, wait=0).removeprefix("#cloud-boothook\n")
    before = disk.mounts()
    if systemd:
        recorder = server.folder / "recorder"
        recorder.mkdir()
        systemctl = recorder / "systemctl"
        systemctl.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{server.folder}/systemctl.log\n')
        systemctl.chmod(0o755)
        before += f"/bin/mkdir -p /run/systemd/system\nPATH={recorder}:$PATH\n"
    return server.run(hook, before=before)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "disk")


def test_the_boothook_writes_all_files_sets_the_route_and_the_environment_without_systemd(
    server: Server, disk: Disk
):
    server.add_nic("eth0")

    for _ in range(2):
        assert boot(server, disk, systemd=False) == (0, "")

        assert disk.written() == {
            "/etc/environment": 0o644,
            "/etc/environment.d/99-gsaas.conf": 0o644,
            "/etc/profile.d/gsaas.sh": 0o644,
            "/etc/systemd/system.conf.d/90-gsaas.conf": 0o644,
            "/etc/systemd/system/gsaas-route.service": 0o644,
            "/etc/systemd/system/multi-user.target.d/90-gsaas.conf": 0o644,
            "/usr/local/sbin/gsaas-route": 0o755,
            "/var/lib/cloud/scripts/per-boot/gsaas": 0o755,
        }
        assert server.routes() == [(PREFIX, "eth0")]
        assert pam.environment(disk.environment) == {"LANG": "C", **ENV}


def test_the_per_boot_script_repairs_what_modules_of_cloud_init_have_replaced(
    server: Server, disk: Disk
):
    """A tenant's `write_files` often has an `/etc/environment`; it runs after the boothook, and before this script."""
    assert boot(server, disk, systemd=False) == (0, "")
    disk.environment.write_text("HTTP_PROXY=http://proxy:3128\n")
    server.add_nic("eth0")

    status = server.run("#!/bin/sh\n/var/lib/cloud/scripts/per-boot/gsaas\n", before=disk.mounts())

    assert status == (0, "")
    assert pam.environment(disk.environment) == {"HTTP_PROXY": "http://proxy:3128", **ENV}
    assert server.routes() == [(PREFIX, "eth0")]


def test_the_boothook_tells_a_running_systemd(server: Server, disk: Disk):
    server.add_nic("eth0")

    assert boot(server, disk, systemd=True) == (0, "")

    told = (server.folder / "systemctl.log").read_text().splitlines()
    assert told == ["set-environment", *(f"{name}={value}" for name, value in ENV.items())]
    assert server.routes() == [(PREFIX, "eth0")]


def test_the_boothook_never_fails_a_boot_for_want_of_an_interface(server: Server, disk: Disk):
    assert boot(server, disk, systemd=False) == (0, "")

    assert server.routes() == []
    assert pam.environment(disk.environment) == {"LANG": "C", **ENV}


def test_the_profile_suits_the_shell(server: Server):
    out = server.folder / "out"
    script = shell_exports({**ENV, "AWKWARD": 'it\'s "$HOME" `x` \\ 😀'})
    script += f'printf "%s\\n" "$AWKWARD" "$LD_LIBRARY_PATH" >{out}\n'

    assert server.run(script + script) == (0, "")

    assert out.read_text() == 'it\'s "$HOME" `x` \\ 😀\n/opt/lib\n'
