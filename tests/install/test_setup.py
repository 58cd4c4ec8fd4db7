# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage setup` makes machines of fresh roots, beside a real MariaDB and a real RabbitMQ; twice is as once."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gsaas import conf, rpc
from gsaas.checkup import database as checkup
from gsaas.db import migration, ready
from tests.openstack import guide
from tests.support import keystone
from tests.support.databases import MariaDB
from tests.support.fresh_root import FreshRoot
from tests.support.ports import ADDRESS, free_ports
from tests.support.rabbitmq import RabbitMQ

pytestmark = [
    pytest.mark.services,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="a root of its own takes root"),
]

SECTION = "The rest, in one command on each machine"
"""Of the operator's guide."""
PROGRAM = f'#!/bin/sh\nexec {sys.executable} -m gsaas.cli.manage "$@"\n'
"""What pip would install."""
URL = "https://gpu.example.org"
KEYSTONE = "Keystone: the user gsaas, its roles, the service gpu-scheduling and its endpoints"
SERVICES = {
    "RabbitMQ: the virtual host gsaas and the account gsaas",
    "the database, its account gsaas, and the tables of this release",
    KEYSTONE,
}
"""Steps of a controller that are not on its machine."""
AGENT = """
bus = "controller:5672"
bus_password = "long-enough"
host_key = "also-long-enough"
gpu_network = ["192.0.2.0/24", "198.51.100.0/24"]
"""


class ListeningMariaDB(MariaDB):
    """Listens on a port of loopback, too, and its socket is where the clients of this root look for it."""

    def command(self) -> list[str]:
        self.port = free_ports(1)[0]
        others = [option for option in super().command() if option != "--skip-networking"]
        return [*others, f"--port={self.port}", f"--bind-address={ADDRESS}"]


class Cloud:
    """What an OpenStack cloud has where GSaaS comes to."""

    def __init__(
        self, database: ListeningMariaDB, bus: RabbitMQ, identity: keystone.Keystone
    ) -> None:
        self.database, self.bus, self.identity = database, bus, identity

    def fill_in(self, script: str) -> str:
        """Put the addresses of this cloud into commands of the guide."""
        database = f"--database={ADDRESS}:{self.database.port} --region=R"
        here = {
            "--bus=controller": f"--bus={ADDRESS}:{self.bus.port} {database}",
            "https://keystone.example.org/v3": self.identity.url,
        }
        return guide.fill_in(script, here)

    def register(self, password: str) -> None:
        """What an administrator of Keystone types."""
        self.identity.give_out("of-gsaas", roles=["service", "admin"], project="service")
        self.identity.enrol("gsaas", password, ["of-gsaas"])
        self.identity.endpoints = [
            {"type": "gpu-scheduling", "interface": interface, "region": "R", "url": URL}
            for interface in ("public", "internal")
        ]


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with ListeningMariaDB() as database, RabbitMQ() as bus, keystone.running() as identity:
        yield Cloud(database, bus, identity)


@contextlib.contextmanager
def from_here(cloud: Cloud) -> Iterator[FreshRoot]:
    """A machine with the packages, from which root administers the database and the message bus."""
    socket = cloud.database.directory / "socket"
    mariadb = f'#!/bin/sh\nexec /usr/bin/mariadb --no-defaults --socket={socket} "$@"\n'
    with FreshRoot({"rabbitmqctl": cloud.bus.script(), "mariadb": mariadb}) as root:
        root.write("/opt/gsaas/bin/gsaas-manage", PROGRAM, 0o755)
        yield root


@pytest.fixture(scope="module")
def controller(cloud: Cloud) -> Iterator[FreshRoot]:
    with from_here(cloud) as root:
        yield root


@pytest.fixture
def second(cloud: Cloud) -> Iterator[FreshRoot]:
    """Another controller, before setup."""
    with from_here(cloud) as root:
        yield root


@pytest.fixture
def host() -> Iterator[FreshRoot]:
    with FreshRoot() as root:
        root.write("/opt/gsaas/bin/gsaas-manage", PROGRAM, 0o755)
        root.write("/etc/answers.toml", AGENT)
        yield root


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Step -> outcome, of what `-f json` prints."""
    return {one["step"]: one["outcome"] for one in json.loads(done.stdout)}


def settings(root: FreshRoot, name: str, prog: str | None = None) -> conf.cfg.ConfigOpts:
    """The configuration of a process in *root*, which has to be without problems."""
    found = conf.load(files=[str(root.path(f"/etc/gsaas/{name}"))], prog=prog)
    assert conf.problems(found) == []
    return found


def everything(root: FreshRoot) -> str:
    """Path, owners, mode, inode, time and target of all files that setup may write."""
    folders = "etc/gsaas* etc/systemd/system etc/polkit-1 usr/local/bin etc/passwd etc/group"
    return root.type(
        f"shopt -s nullglob; cd /; find {folders} -printf '%p %u:%g %m %i %T@ %l\\n' | sort"
    )


def test_a_controller_is_made_as_far_as_it_can_be_and_the_rest_is_said(
    cloud: Cloud, controller: FreshRoot
):
    command, *_ = guide.blocks(SECTION)
    typed = cloud.fill_in(command)
    planned = controller.enter("sh", "-c", f"{typed} --dry-run -f json")
    assert planned.returncode == 0, planned.stderr
    assert set(outcomes(planned).values()) == {"would make"}
    assert controller.type("ls /etc/gsaas 2>&1 || true").endswith("No such file or directory\n")

    made = controller.enter("sh", "-c", typed)
    assert made.returncode == 1, made.stdout + made.stderr
    assert "openstack user create --domain default --password PASSWORD gsaas" in made.stdout
    assert f"endpoint create --region R gpu-scheduling internal {URL}" in made.stdout
    assert "left to do   gsaas-api, enabled and started" in made.stdout
    for secret in secrets_of(controller):
        assert secret not in made.stdout + made.stderr


def secrets_of(controller: FreshRoot) -> list[str]:
    names = "bus_secret|bus_password|database_password|keystone_password"
    found = controller.type(
        f"grep -E '^({names}) = ' /etc/gsaas/setup-controller.toml | cut -d'\"' -f2"
    )
    assert len(found.split()) == 4
    return found.split()


def test_once_the_administrator_has_done_the_rest_it_is_done_and_then_nothing_changes(
    cloud: Cloud, controller: FreshRoot
):
    *_, password = secrets_of(controller)
    cloud.register(password)
    done = outcomes(controller.manage("setup", "controller", "-f", "json"))
    assert {step for step, outcome in done.items() if outcome != "unchanged"} == {
        f"{unit}, enabled and started"
        for unit in ("gsaas-api", "gsaas-engine", "gsaas-purge.timer", "gsaas-verify.timer")
    }
    before = everything(controller)
    again = controller.manage("setup", "controller", "-f", "json")
    assert again.returncode == 0, again.stderr
    assert set(outcomes(again).values()) == {"unchanged"}
    assert everything(controller) == before


def test_the_services_of_a_controller_find_all_that_they_need(cloud: Cloud, controller: FreshRoot):
    found = settings(controller, "gsaas.conf")
    database = ready.connect(found)
    try:
        assert migration.version(database) == migration.head()
        assert {one.level for one in checkup.check(database)} == {"ok"}
    finally:
        database.close()
    for url in (None, found.nova.notification_url):
        bus = rpc.connect(found, url)
        rpc.check(bus)
        bus.cleanup()
    modes = controller.type(
        "cd /etc/gsaas && stat -c '%n %U:%G %a' gsaas.conf setup-controller.toml"
    )
    assert modes.splitlines() == [
        "gsaas.conf root:gsaas 640",
        "setup-controller.toml root:root 600",
    ]


def test_an_option_of_the_operator_stays_and_counts(controller: FreshRoot):
    controller.write("/etc/gsaas/gsaas.conf.d/own.conf", "[gpgpums]\npolicy = best-fit\n")
    again = controller.manage("setup", "controller", "-f", "json")
    assert set(outcomes(again).values()) == {"unchanged"}
    assert "best-fit" in controller.type("cat /etc/gsaas/gsaas.conf.d/own.conf")
    controller.type("rm -r /etc/gsaas/gsaas.conf.d")


def test_another_answer_changes_what_depends_on_it_and_keeps_a_copy(controller: FreshRoot):
    before = controller.type("cat /etc/gsaas/gsaas.conf")
    done = controller.manage("setup", "controller", "--driver=lupine")
    assert done.returncode == 0, done.stdout
    assert "what it was is in /etc/gsaas/gsaas.conf.before" in done.stdout
    assert controller.type("cat /etc/gsaas/gsaas.conf.before") == before
    assert settings(controller, "gsaas.conf").remoting.driver == "lupine"
    back = controller.manage("setup", "controller", "--driver=rcuda", "-f", "json")
    assert (
        outcomes(back)["/etc/gsaas/gsaas.conf, mode 0640, of root and the group gsaas"] == "changed"
    )
    assert controller.type("cat /etc/gsaas/gsaas.conf") == before
    assert "driver = lupine" in controller.type("cat /etc/gsaas/gsaas.conf.before.2")


def test_another_controller_joins_with_a_copy_of_the_answers(
    controller: FreshRoot, second: FreshRoot
):
    second.write("/srv/first.toml", controller.type("cat /etc/gsaas/setup-controller.toml"))
    joined = second.manage("setup", "controller", "--answers=/srv/first.toml", "-f", "json")
    assert joined.returncode == 0, joined.stdout
    found = outcomes(joined)
    assert {step for step, outcome in found.items() if outcome == "unchanged"} == SERVICES
    assert set(found.values()) == {"made", "unchanged"}
    for name in ("gsaas.conf", "setup-controller.toml"):
        assert second.type(f"cat /etc/gsaas/{name}") == controller.type(f"cat /etc/gsaas/{name}")


def test_a_controller_without_these_answers_takes_no_account_away(
    cloud: Cloud, controller: FreshRoot, second: FreshRoot
):
    command, *_ = guide.blocks(SECTION)
    refused = second.enter("sh", "-c", f"{cloud.fill_in(command)} -f json")
    assert refused.returncode == 1, refused.stdout + refused.stderr
    left = {one["step"]: one["more"] for one in json.loads(refused.stdout) if one["more"]}
    assert left.keys() > SERVICES
    for step in SERVICES - {KEYSTONE}:  # there it has no credentials
        assert "run this with --answers and a copy of its /etc/gsaas/setup-con" in left[step]
    for root in (controller, second):
        for secret in secrets_of(root):
            assert secret not in refused.stdout + refused.stderr
    first = controller.manage("setup", "controller", "-f", "json")
    assert set(outcomes(first).values()) == {"unchanged"}


def test_a_controller_gives_hosts_their_accounts_and_answers(
    cloud: Cloud, controller: FreshRoot, host: FreshRoot
):
    _, give, *make, _ = guide.blocks(SECTION)
    controller.type(f"cd /root; {give}")
    for name, typed in zip(("gpu1", "compute1"), make, strict=True):
        given = controller.type(f"cat /root/{name}.toml")
        host.write(f"/root/{name}.toml", given, 0o600)
        *_, command = guide.commands(typed)  # the first installs a package
        host.type(f"cd /root; {command}")
    again = controller.manage("setup", "answers", "compute1", "compute")
    assert again.stdout == given
    for agent in (rpc.MONITOR, rpc.RODVR):
        found = settings(host, f"{agent}.conf", agent)
        assert found.host == {rpc.MONITOR: "gpu1", rpc.RODVR: "compute1"}[agent]
        bus = rpc.connect(found, agent=agent)
        rpc.check(bus)
        bus.cleanup()


@pytest.mark.parametrize("role", ["compute", "gpu-host"])
def test_a_host_is_made_once_and_then_nothing_changes(host: FreshRoot, role: str):
    first = ["setup", role, "--answers=/etc/answers.toml", "-f", "json"]
    if role == "gpu-host":
        first.append("--gpu-address=192.0.2.11")
    made = host.manage(*first)
    assert made.returncode == 0, made.stderr
    assert set(outcomes(made).values()) == {"made"}
    before = everything(host)
    again = host.manage("setup", role, "-f", "json")
    assert again.returncode == 0, again.stderr
    assert set(outcomes(again).values()) == {"unchanged"}
    assert everything(host) == before


def test_a_terminal_is_asked_what_is_missing(host: FreshRoot):
    host.write("/etc/secrets.toml", 'bus_password = "long-enough"\nhost_key = "also-long-enough"\n')
    command = "/opt/gsaas/bin/gsaas-manage setup compute --answers /etc/secrets.toml"
    typed = "controller\n192.0.2.0/24\n"
    done = host.enter("script", "-qec", command, "/dev/null", stdin=typed)
    assert done.returncode == 0, done.stdout
    assert "gpu_network: the GPU network of all hosts; IPv4 networks with commas" in done.stdout
    assert settings(host, "gsaas-rodvr.conf").gpu_network.prefixes == ["192.0.2.0/24"]


def test_a_configuration_that_somebody_else_wrote_is_not_replaced(host: FreshRoot):
    host.write("/etc/gsaas/gsaas-rodvr.conf", "[DEFAULT]\ndebug = true\n")
    before = everything(host)
    refused = host.manage("setup", "compute", "--answers=/etc/answers.toml")
    assert refused.returncode == 2
    assert "/etc/gsaas/gsaas-rodvr.conf is there, and setup has not written it" in refused.stderr
    assert everything(host) == before


def test_what_is_wrong_with_an_answer_is_said_before_anything_is_done(host: FreshRoot):
    before = everything(host)
    for wrong, said in (
        ("--gpu-address=here", "gpu_address is an IPv4 address, such as 192.0.2.11, not 'here'"),
        ("--driver=cuda", "driver is one of "),
        ("--gpu-address=", "gpu_address is an IPv4 address, such as 192.0.2.11, not ''"),
    ):
        more = () if "address" in wrong else ("--gpu-address=192.0.2.11",)
        refused = host.manage("setup", "gpu-host", "--answers=/etc/answers.toml", wrong, *more)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert said in refused.stderr
    host.write("/srv/more.toml", AGENT + 'colour = "red"\n')
    refused = host.manage("setup", "gpu-host", "--answers=/srv/more.toml")
    assert "/srv/more.toml: there is no answer 'colour'" in refused.stderr
    assert everything(host) == before
