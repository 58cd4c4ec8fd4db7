# SPDX-License-Identifier: Apache-2.0
"""The processes of a deployment on a real message bus: they start or say why not, survive both their servers, and end.

One network namespace is the machine: RabbitMQ, two engines, a RODVR endpoint and a monitor run in it and speak over
its loopback. The database is outside, reached through its socket. NVIDIA's driver is a fake one; what asks it is not.
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

from gsaas.db import endpoints, gpus, hosts, leases, migration, settings
from gsaas.db.database import Database
from gsaas.db.models import GpuReadingRow, GpuRow, LeaseRow
from gsaas.objects.lifecycle import Event, Status
from gsaas.objects.ports import PortRange
from gsaas.objects.request import Request
from tests.support import rows
from tests.support.databases import MariaDB
from tests.support.nvml import driver as fake
from tests.support.rabbitmq import RabbitMQ
from tests.support.scheduling import open_claims
from tests.support.waiting import PATIENCE, until

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace"),
]

HOST, TAP = "Compute1.Example.org", "tap0"
"""A name as Nova may have it: in full, and with capitals."""
PORT = {
    "host": HOST,
    "id": "port-1",
    "tap": TAP,
    "mac": "fa:16:3e:00:00:05",
    "ip": "10.0.0.5",
}
SETTINGS = """\
[DEFAULT]
transport_url = {bus}
host = {host}

[database]
connection = {database}
max_retries = 0

[engine]
cloud = of-the-test
audit_interval = 0.5
endpoint_timeout = 3

[remoting]
driver = simulated

[monitor]
monitor_interval = 1
source = nvml
gpu_address = 192.0.2.1

[daemons]
life = per-lease
state_dir = {folder}/daemons

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
        self.library = fake.build(self.folder)
        self.driver = fake.FakeDriver(self.folder / "driver")
        self.driver.have(2)

    def tear_down(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()
        run("ip", "netns", "delete", self.name)

    def configure(self, bus: str, database: str) -> None:
        self.settings.write_text(
            SETTINGS.format(
                bus=bus,
                database=database,
                host=HOST,
                folder=self.folder,
            )
        )

    def command(self, program: str) -> list[str]:
        """What runs a program; an agent has the one capability that it needs."""
        module = {
            "engine": ["tests.support.engine_process", str(self.folder)],
            "rodvr": ["gsaas.cli.rodvr"],
            "monitor": ["gsaas.cli.monitor"],
        }[program.rstrip("0123456789")]
        bounds = {
            "rodvr": ["--bounding-set=-all,+net_admin"],
            "monitor": ["--bounding-set=-all,+net_admin"],
        }.get(program, [])
        return [
            *("ip", "netns", "exec", self.name),
            *("setpriv", *bounds, "--pdeathsig=KILL", "--"),
            *(sys.executable, "-m", *module, "--config-file", str(self.settings)),
        ]

    @property
    def environment(self) -> dict[str, str]:
        """Of every program: NVIDIA's driver is there, and is a fake one."""
        ours = {"LD_LIBRARY_PATH": str(self.library.parent), "FAKE_NVML": str(self.driver.path)}
        return {**os.environ, **ours}

    def start(self, program: str) -> None:
        """Start a program (a number at its end tells several apart), and return once it says that it has started."""
        with (self.folder / f"{program}.log").open("wb") as file:
            self.running[program] = subprocess.Popen(
                self.command(program), stdout=file, stderr=subprocess.STDOUT, env=self.environment
            )
        until(lambda: "has started" in self.log(program) or self.running[program].poll(), program)
        assert self.running[program].poll() is None, self.log(program)

    def log(self, program: str) -> str:
        return (self.folder / f"{program}.log").read_text()

    def refused(self, program: str) -> str:
        """What a program says when it does not start."""
        done = subprocess.run(
            self.command(program),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=self.environment,
        )
        assert done.returncode == 1, done.stderr
        return done.stderr.splitlines()[-1]

    def check_up(self) -> dict[str, str]:
        """What `gsaas-manage check` finds: part -> level."""
        (self.folder / "controller.conf").write_text(
            self.settings.read_text() + "[api]\nauth_strategy = token-file\n"
        )
        done = subprocess.run(
            [
                *("ip", "netns", "exec", self.name, sys.executable, "-m", "gsaas.cli.manage"),
                *("--config-file", str(self.folder / "controller.conf"), "check", "-f", "json"),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        found = json.loads(done.stdout)
        assert done.returncode == any(finding["level"] == "fail" for finding in found)
        return {finding["part"]: finding["level"] for finding in found}

    def stop(self, program: str) -> int:
        """Ask a program to end, and return its exit status."""
        process = self.running.pop(program)
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE)

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
    machine = Machine(f"bus-{os.getpid()}", tmp_path_factory.mktemp("bus"))
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
        self._claims = open_claims(database, daemon_ports={"simulated": PortRange(20000, 29999)})

    def seen(self) -> tuple[Any, ...] | None:
        """When the monitor and the endpoint reported last; None if they have not yet."""
        with self._database.read() as session:
            found = hosts.page(session, limit=10)
            if not found or not found[0].gpus or not found[0].endpoint:
                return None
            return found[0].monitor_seen_at, endpoints.get(session, HOST).seen_at

    def gpus(self) -> dict[str, GpuRow]:
        with self._database.read() as session:
            return {gpu.uuid: gpu for gpu in gpus.page(session, limit=10)}

    def readings(self) -> dict[str, GpuReadingRow]:
        with self._database.read() as session:
            return gpus.readings(session, [fake.uuid(0), fake.uuid(1)])

    def withdrawn(self) -> dict[str, str]:
        """UUID -> reason."""
        return {
            uuid: gpu.withdrawn_reason for uuid, gpu in self.gpus().items() if gpu.withdrawn_reason
        }

    def enable(self, uuid: str) -> None:
        with self._database.write() as session:
            gpus.set_disabled(session, uuid, False)

    def interval(self) -> float:
        """Seconds after which the monitor said that it reports again."""
        with self._database.read() as session:
            return hosts.get(session, HOST).monitor_interval

    def set_interval(self, seconds: int | None) -> None:
        with self._database.write() as session:
            settings.put(session, settings.MONITOR_INTERVAL, seconds)

    def claim(self, name: str) -> str:
        """Take a cGPU, as the API does."""
        request = Request(count=1, mode="shared", memory_mb=1024)
        lease = rows.new_lease(name, memory_mb=1024, remoting="simulated", server_request={})
        return self._claims.claim(lease, request).id

    def wait(self, name: str) -> str:
        """Wait for both GPUs, as the API does."""
        request = Request(count=2)
        lease = rows.new_lease(
            name,
            count=2,
            mode="exclusive",
            memory_mb=None,
            remoting="simulated",
            server_request={},
        )
        return self._claims.queue.join(lease, request).id

    def release(self, lease_id: str) -> None:
        with self._database.write() as session:
            leases.transition(session.connection(), lease_id, Event.RELEASE)

    def story(self, lease_id: str) -> list[str]:
        with self._database.read() as session:
            return [event.event for event in leases.events(session.connection(), lease_id)]

    def lease(self, lease_id: str) -> LeaseRow:
        with self._database.read() as session:
            return leases.get(session.connection(), lease_id)

    def reaches(self, lease_id: str, status: Status) -> bool:
        def arrived() -> bool:
            return self.lease(lease_id).status == status

        try:
            return until(arrived, f"{lease_id} to be {status}")
        except AssertionError as late:
            raise AssertionError(f"{late}; its story: {self.story(lease_id)}") from None


def test_a_lease_is_wired_and_taken_apart_over_the_bus(deployment: Deployment, machine: Machine):
    lease = deployment.claim("plain")
    assert deployment.reaches(lease, Status.ACTIVE)
    assert machine.mappings() == 1
    deployment.release(lease)
    assert deployment.reaches(lease, Status.RELEASED)
    assert machine.mappings() == 0


def test_gpus_are_known_with_what_was_read_of_them(deployment: Deployment):
    reading = until(lambda: deployment.readings().get(fake.uuid(1)), "a reading")
    assert (reading.used_mb, reading.utilisation, reading.power_w) == (1024, 50, 250.5)
    assert deployment.gpus()[fake.uuid(1)].compute_capability == "8.0"


def test_a_gpu_that_falls_off_the_bus_is_withdrawn_and_returns(
    deployment: Deployment, machine: Machine
):
    machine.driver.lose(1)
    until(lambda: deployment.withdrawn().keys() == {fake.uuid(1)}, "the GPU to be withdrawn")
    assert "it fails: " in deployment.withdrawn()[fake.uuid(1)]
    machine.driver.find_again(1)
    until(lambda: not deployment.withdrawn(), "the GPU to return")


def test_after_a_fatal_error_a_gpu_returns_when_an_operator_says_so(
    deployment: Deployment, machine: Machine
):
    machine.driver.report(0, 79)
    fallen = {fake.uuid(0): "XID 79: it has fallen off the bus"}
    until(lambda: deployment.withdrawn() == fallen, "the GPU to be withdrawn")
    deployment.enable(fake.uuid(0))
    before = deployment.seen()
    until(lambda: deployment.seen()[0] > before[0], "another report")
    assert deployment.withdrawn() == {}


def test_the_monitor_goes_on_without_a_driver_and_finds_another_one(
    deployment: Deployment, machine: Machine
):
    """The library is taken away, as when a driver is replaced, and another one is put in its place."""
    machine.driver.fail(fake.VERSION_MISMATCH)
    until(lambda: len(deployment.withdrawn()) == 2, "both GPUs to be withdrawn")
    machine.library.unlink()
    until(lambda: "Library Not Found" in str(deployment.withdrawn()), "the reason")
    machine.driver.fail(0)
    fake.build.cache_clear()
    fake.build(machine.library.parent)
    until(lambda: not deployment.withdrawn(), "the GPUs to return")
    assert machine.running["monitor"].poll() is None
    assert machine.log("monitor").count("driver does not answer: NVML Shared Library") == 2


def test_how_often_monitors_report_can_be_changed_while_they_run(deployment: Deployment):
    assert deployment.interval() == 1
    deployment.set_interval(2)
    until(lambda: deployment.interval() == 2, "the new interval")
    deployment.set_interval(None)
    until(lambda: deployment.interval() == 1, "the old interval")


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


def test_who_waits_is_served_over_the_bus_whichever_engine_dies(
    deployment: Deployment, machine: Machine
):
    holder = deployment.claim("holder")
    first, second = deployment.wait("first-in-line"), deployment.wait("second-in-line")
    assert deployment.lease(first).status == deployment.lease(second).status == Status.QUEUED

    deployment.release(holder)
    assert deployment.reaches(first, Status.ACTIVE)

    for engine in ("engine1", "engine2"):
        dead = machine.running.pop(engine)
        dead.kill()
        dead.wait()
    deployment.release(first)
    for engine in ("engine1", "engine2"):
        machine.start(engine)
    assert deployment.reaches(second, Status.ACTIVE)
    deployment.release(second)
    assert deployment.reaches(second, Status.RELEASED)


def test_a_gpu_is_not_free_until_its_monitor_confirms_that_the_daemon_is_gone(
    deployment: Deployment, machine: Machine
):
    lease = deployment.claim("supervised")
    assert deployment.reaches(lease, Status.ACTIVE)
    dead = machine.running.pop("monitor")
    dead.kill()
    dead.wait()
    deployment.release(lease)
    until(lambda: deployment.lease(lease).server_id is None, "the server to be deleted")
    assert deployment.lease(lease).claims, "its daemon may still compute"
    machine.start("monitor")
    assert deployment.reaches(lease, Status.RELEASED)


def test_the_fence_admits_while_the_lease_lives(deployment: Deployment, machine: Machine):
    def admitted() -> list[str]:
        command = ["ip", "netns", "exec", machine.name, "nft", "-j", "list", "set", "inet"]
        listed = json.loads(run(*command, "gsaas_fence", "admitted"))["nftables"]
        elements = listed[1]["set"].get("elem", [])
        return [f"{each['concat'][0]}:{each['concat'][1]}" for each in elements]

    assert admitted() == []
    lease = deployment.claim("fenced")
    assert deployment.reaches(lease, Status.ACTIVE)
    (claim,) = deployment.lease(lease).claims
    assert admitted() == [f"127.0.0.1:{claim.daemon_port}"]  # the host's own VM
    deployment.release(lease)
    assert deployment.reaches(lease, Status.RELEASED)
    assert admitted() == []


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


def test_a_check_up_sees_who_does_his_work_and_who_does_not(
    deployment: Deployment, machine: Machine
):
    assert machine.check_up() == {
        "configuration": "ok",
        "database": "ok",
        "clock": "ok",
        "claims": "ok",
        "reservations": "ok",
        "leases": "ok",
        "monitors": "ok",
        "endpoints": "ok",
        "message bus": "ok",
        "bus signatures": "warn",
        "engine": "ok",
        "quotas": "ok",
    }
    for engine in ("engine1", "engine2"):
        machine.stop(engine)
    assert machine.check_up()["engine"] == "fail"
    for engine in ("engine1", "engine2"):
        machine.start(engine)


def test_all_end_at_once_when_told_to_even_without_a_bus(
    deployment: Deployment, machine: Machine, rabbitmq: RabbitMQ
):
    rabbitmq.kill()
    assert [machine.stop(program) for program in list(machine.running)] == [0, 0, 0, 0]


def test_without_a_bus_each_says_so_and_does_not_start(deployment: Deployment, machine: Machine):
    for program in ("engine", "rodvr", "monitor"):
        assert "there is no message bus" in machine.refused(program)
