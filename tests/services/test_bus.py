"""The processes of a deployment on a real message bus: they start or say why not, survive both their servers, and end.

One network namespace is the machine: RabbitMQ, two engines, a RODVR endpoint and a monitor run in it and speak over
its loopback. The database is outside, reached through its socket.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gsaas.db import endpoints, hosts, leases, migration
from gsaas.db.database import Database
from gsaas.db.models import Lease
from gsaas.gpgpums.claims import Claims, MaskedAddresses
from gsaas.gpgpums.state import Request
from gsaas.lifecycle import Event, Status
from tests.support import rows
from tests.support.databases import MariaDB
from tests.support.rabbitmq import RabbitMQ
from tests.support.waiting import until

pytestmark = [
    pytest.mark.services,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace"),
]

HOST, TAP = "compute1", "tap0"
PORT = {
    "host": HOST,
    "id": "port-1",
    "tap": TAP,
    "mac": "fa:16:3e:00:00:05",
    "ip": "10.0.0.5",
}
INVENTORY = f"""\
gpu_network = "192.0.2.0/24"

[[hosts]]
name = "{HOST}"
gpu_address = "192.0.2.1"
gpus = 2
"""
SETTINGS = """\
[DEFAULT]
transport_url = {bus}
host = {host}

[database]
connection = {database}
max_retries = 0

[engine]
audit_interval = 0.5
endpoint_timeout = 3

[remoting]
driver = simulated

[monitor]
monitor_interval = 1
inventory = {inventory}

[rodvr]
audit_interval = 1
"""


class Machine:
    """A network namespace in which the processes of a deployment run."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.settings = folder / "gsaas.conf"
        self.running: dict[str, subprocess.Popen] = {}

    def set_up(self) -> None:
        run("ip", "netns", "add", self.name)
        for words in (
            "link set lo up",
            "link add gpu0 type veth peer name gpu1",
            "addr add 192.0.2.1/24 dev gpu0",
            "link set gpu0 up",
            "link set gpu1 up",
            f"link add {TAP} type veth peer name vm0",
            f"link set {TAP} up",
        ):
            run("ip", "-n", self.name, *words.split())
        (self.folder / "port.json").write_text(json.dumps(PORT))
        (self.folder / "inventory.toml").write_text(INVENTORY)

    def tear_down(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()
        run("ip", "netns", "delete", self.name)

    def configure(self, bus: str, database: str) -> None:
        self.settings.write_text(
            SETTINGS.format(
                bus=bus, database=database, host=HOST, inventory=self.folder / "inventory.toml"
            )
        )

    def command(self, program: str) -> list[str]:
        """What runs a program; an agent has the one capability that it needs, or none."""
        module = {
            "engine": ["tests.support.engine_process", str(self.folder)],
            "rodvr": ["gsaas.cli.rodvr"],
            "monitor": ["gsaas.cli.monitor"],
        }[program.rstrip("0123456789")]
        bounds = {
            "rodvr": ["--bounding-set=-all,+net_admin"],
            "monitor": ["--bounding-set=-all"],
        }.get(program, [])
        return [
            *("ip", "netns", "exec", self.name),
            *("setpriv", *bounds, "--pdeathsig=KILL", "--"),
            *(sys.executable, "-m", *module, "--config-file", str(self.settings)),
        ]

    def start(self, program: str) -> None:
        """Start a program (a number at its end tells several apart), and return once it says that it has started."""
        with (self.folder / f"{program}.log").open("wb") as file:
            self.running[program] = subprocess.Popen(
                self.command(program), stdout=file, stderr=subprocess.STDOUT
            )
        until(
            lambda: "has started" in self.log(program) or self.running[program].poll(), program, 60
        )
        assert self.running[program].poll() is None, self.log(program)

    def log(self, program: str) -> str:
        return (self.folder / f"{program}.log").read_text()

    def refused(self, program: str) -> str:
        """What a program says when it does not start."""
        done = subprocess.run(self.command(program), capture_output=True, text=True, timeout=120)
        assert done.returncode == 1
        return done.stderr.splitlines()[-1]

    def stop(self, program: str) -> int:
        """Ask a program to end, and return its exit status."""
        process = self.running.pop(program)
        process.send_signal(signal.SIGTERM)
        return process.wait(60)

    def mappings(self) -> int:
        """How many masked addresses the kernel of the machine translates."""
        listed = json.loads(run("ip", "netns", "exec", self.name, "nft", "-j", "list", "ruleset"))
        maps = [entry["map"] for entry in listed["nftables"] if "map" in entry]
        return sum(
            len(each.get("elem", ()))
            for each in maps
            if each["table"] == "rodvr" and each["family"] == "ip"
        )


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(f"gsaas-bus-{os.getpid()}", tmp_path_factory.mktemp("bus"))
    try:
        machine.set_up()
        yield machine
    finally:
        machine.tear_down()


@pytest.fixture(scope="module")
def rabbitmq(machine: Machine) -> Iterator[RabbitMQ]:
    with RabbitMQ(machine.name) as server:
        yield server


class DurableMariaDB(MariaDB):
    """Remembers what it confirmed when it is killed: the others may forget, as they are never asked to."""

    def command(self) -> list[str]:
        return [*super().command(), "--innodb-flush-log-at-trx-commit=1"]


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDB]:
    with DurableMariaDB() as server:
        yield server


@pytest.fixture(scope="module")
def stored(mariadb: MariaDB) -> Iterator[Database]:
    url = mariadb.create("gsaas")
    migration.upgrade(url)
    database = Database.open(url)
    yield database
    database.close()


@pytest.fixture(scope="module")
def deployment(
    machine: Machine, rabbitmq: RabbitMQ, mariadb: MariaDB, stored: Database
) -> Deployment:
    machine.configure(rabbitmq.url, mariadb.url("gsaas"))
    for program in ("engine1", "engine2", "rodvr", "monitor"):
        machine.start(program)
    deployment = Deployment(stored)
    until(deployment.seen, "both agents to report")
    return deployment


class Deployment:
    """What the database knows of the running deployment."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._claims = Claims(
            database,
            attempts=20,
            heartbeat_timeout=3600,
            masked=MaskedAddresses("169.254.71.0/24", 8308),
        )

    def seen(self) -> tuple[Any, ...] | None:
        """When the monitor and the endpoint reported last; None if they have not yet."""
        with self._database.read() as session:
            found = hosts.page(session, limit=10)
            if not found or not found[0].gpus or not found[0].endpoint:
                return None
            return found[0].monitor_seen_at, endpoints.get(session, HOST).seen_at

    def claim(self, name: str) -> str:
        """Take a cGPU, as the API does."""
        request = Request(count=1, mode="shared", memory_mb=1024)
        lease = rows.lease(name, memory_mb=1024, remoting="simulated", server_request={})
        return self._claims.claim(lease, request).id

    def release(self, lease_id: str) -> None:
        with self._database.write() as session:
            leases.transition(session, lease_id, Event.RELEASE)

    def lease(self, lease_id: str) -> Lease:
        with self._database.read() as session:
            return leases.get(session, lease_id)

    def reaches(self, lease_id: str, status: Status) -> bool:
        return bool(
            until(lambda: self.lease(lease_id).status == status, f"{lease_id} {status}", 90)
        )


def test_a_lease_is_wired_and_taken_apart_over_the_bus(deployment: Deployment, machine: Machine):
    lease = deployment.claim("plain")
    assert deployment.reaches(lease, Status.ACTIVE)
    assert machine.mappings() == 1
    deployment.release(lease)
    assert deployment.reaches(lease, Status.RELEASED)
    assert machine.mappings() == 0


def test_what_was_asked_for_while_the_bus_was_dead_is_done_when_it_is_back(
    deployment: Deployment, machine: Machine, rabbitmq: RabbitMQ
):
    rabbitmq.kill()
    lease = deployment.claim("patient")
    until(lambda: deployment.lease(lease).status == Status.BOOTING, "the server")
    rabbitmq.start()
    assert deployment.reaches(lease, Status.ACTIVE)
    assert machine.mappings() == 1
    rabbitmq.kill()
    assert machine.mappings() == 1, "what works goes on working without a bus"
    deployment.release(lease)
    rabbitmq.start()
    assert deployment.reaches(lease, Status.RELEASED)
    assert machine.mappings() == 0


def test_the_agents_report_again_when_the_bus_is_back(deployment: Deployment, rabbitmq: RabbitMQ):
    rabbitmq.kill()
    rabbitmq.start()
    before = deployment.seen()
    until(lambda: all(new > old for new, old in zip(deployment.seen(), before, strict=True)))


def test_what_was_under_way_while_the_database_was_dead_is_finished_when_it_is_back(
    deployment: Deployment, machine: Machine, mariadb: MariaDB
):
    lease = deployment.claim("forgetful")
    mariadb.kill()
    mariadb.start()
    assert deployment.reaches(lease, Status.ACTIVE)
    before = deployment.seen()
    until(lambda: all(new > old for new, old in zip(deployment.seen(), before, strict=True)))
    deployment.release(lease)
    assert deployment.reaches(lease, Status.RELEASED)


def test_one_engine_finishes_what_a_dead_one_had_begun(deployment: Deployment, machine: Machine):
    lease = deployment.claim("orphaned")
    dead = machine.running.pop("engine1")
    dead.kill()
    dead.wait()
    assert deployment.reaches(lease, Status.ACTIVE)
    deployment.release(lease)
    assert deployment.reaches(lease, Status.RELEASED)
    machine.start("engine1")


def test_gpus_stay_with_a_lease_until_its_endpoint_says_that_it_lost_them(
    deployment: Deployment, machine: Machine
):
    lease = deployment.claim("unconfirmed")
    assert deployment.reaches(lease, Status.ACTIVE)
    dead = machine.running.pop("rodvr")
    dead.kill()
    dead.wait()
    deployment.release(lease)
    until(lambda: deployment.lease(lease).server_id is None, "the server to be deleted")
    assert deployment.lease(lease).claims
    machine.start("rodvr")
    assert deployment.reaches(lease, Status.RELEASED)
    assert not deployment.lease(lease).claims


def test_a_hangup_changes_the_level_of_the_log(deployment: Deployment, machine: Machine):
    engines = ("engine1", "engine2")

    def steps() -> bool:
        return any(" DEBUG gsaas.engine" in machine.log(engine) for engine in engines)

    settings = machine.settings.read_text()
    machine.settings.write_text(settings.replace("[DEFAULT]", "[DEFAULT]\ndebug = true"))
    assert not steps()
    for engine in engines:
        machine.running[engine].send_signal(signal.SIGHUP)
        until(lambda engine=engine: "read again" in machine.log(engine), "the news to be taken")
    machine.settings.write_text(settings)
    lease = deployment.claim("verbose")
    assert deployment.reaches(lease, Status.ACTIVE)
    deployment.release(lease)
    assert deployment.reaches(lease, Status.RELEASED)
    assert steps()


def test_all_end_at_once_when_told_to_even_without_a_bus(
    deployment: Deployment, machine: Machine, rabbitmq: RabbitMQ
):
    rabbitmq.kill()
    assert [machine.stop(program) for program in list(machine.running)] == [0, 0, 0, 0]


def test_without_a_bus_each_says_so_and_does_not_start(deployment: Deployment, machine: Machine):
    for program in ("engine", "rodvr", "monitor"):
        assert "there is no message bus" in machine.refused(program)
