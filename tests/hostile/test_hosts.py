# SPDX-License-Identifier: Apache-2.0
"""A host that lies: about its GPUs, about its address, and about its name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.checkup import agents
from gsaas.context import RequestContext
from gsaas.db import endpoints, gpus, hosts, leases, metrics
from gsaas.db.database import Database
from gsaas.engine.agents import Agents
from gsaas.engine.callers import Callers
from gsaas.engine.rpc_endpoint import RpcEndpoint, may_send
from gsaas.grants.keyring import Keyring
from gsaas.objects.gpu_network import GpuNetwork
from gsaas.objects.gpu_report import GpuInfo, GpuReport, GpuSnapshot, Reading
from gsaas.objects.lifecycle import Status
from gsaas.rpc.hosts import AgentCallFailed
from gsaas.rpc.monitor import MonitorClient
from tests.support import rows, sqlite

NETWORK = GpuNetwork.of(["192.0.2.0/24"])
CONTEXT = RequestContext(overwrite=False)
GPU = GpuInfo("GPU-a", 0, "NVIDIA L4", 23034, 8308)


@pytest.fixture
def database(tmp_path) -> Iterator[Database]:
    database = sqlite.in_file(tmp_path / "gsaas.db", sqlite.migrated())
    yield database
    database.close()


@dataclass
class Engine:
    """The engine's side of the message bus, called without one."""

    database: Database
    woken: list[str] = field(default_factory=list)
    network: GpuNetwork = NETWORK

    def __post_init__(self) -> None:
        monitors = MonitorClient.__new__(MonitorClient)  # nothing here is sent to a monitor
        self.inbox = RpcEndpoint(
            self.database, Agents(None, monitors, self.network), self.woken.append, Callers()
        )

    def monitor_reports(
        self, host: str, address: str, *infos: GpuInfo, readings: dict[str, Reading] | None = None
    ) -> None:
        report = GpuReport(address, 10.0, GpuSnapshot(infos, readings or {}))
        self.inbox.monitor_report(CONTEXT, host, report.to_dict())

    def endpoint_reports(self, host: str, address: str) -> None:
        report = {"bindings": {}, "problems": [], "gpu_address": address}
        self.inbox.endpoint_report(CONTEXT, host, report)

    def host_of(self, uuid: str) -> str:
        with self.database.read() as session:
            return gpus.get(session, uuid).host_name

    def problems(self, host: str) -> list[str]:
        with self.database.read() as session:
            return hosts.get(session, host).monitor_problems

    def adopt(self, uuid: str, host: str) -> None:
        with self.database.write() as session:
            gpus.adopt(session, uuid, host)


@pytest.fixture
def engine(database: Database) -> Engine:
    engine = Engine(database)
    engine.monitor_reports("gpu1", "192.0.2.11", GPU)
    return engine


def bind(database: Database, lease_id: str = "lease-1") -> None:
    """Give a lease a part of GPU-a, and bind it to a VM on compute1."""
    with database.write() as session:
        session.add(
            rows.lease(
                lease_id,
                status=Status.ACTIVE,
                server_id=f"server-{lease_id}",
                port_id=f"port-{lease_id}",
                port_tap="tap1",
                port_mac="fa:16:3e:00:00:05",
                port_ip="10.0.0.5",
                bound_host="compute1",
            )
        )
        session.flush()
        session.add(rows.claim(lease_id))
        gpu = gpus.get(session, "GPU-a")
        gpu.used_mb, gpu.leases = 2048, 1


def mappings(engine: Engine) -> list[dict[str, str]]:
    """Where the engine has the VMs of compute1 led to."""
    started = engine.inbox.endpoint_started(CONTEXT, "compute1")
    return [binding["mappings"] for binding in started["bindings"]]


class TestGpus:
    def test_a_host_that_names_the_gpu_of_another_does_not_get_its_leases(self, engine, database):
        bind(database)
        engine.monitor_reports("evil", "192.0.2.66", GPU)
        engine.monitor_reports("gpu1", "192.0.2.11", GPU)
        assert engine.host_of("GPU-a") == "gpu1"
        assert mappings(engine) == [{"169.254.71.1:8308": "192.0.2.11:8308"}]

    def test_nor_does_it_get_a_gpu_that_no_lease_uses_or_whose_host_is_silent(self, engine):
        engine.monitor_reports("evil", "192.0.2.66", GPU)
        engine.monitor_reports("evil", "192.0.2.66", GPU)
        assert engine.host_of("GPU-a") == "gpu1"

    def test_nor_a_gpu_that_is_withdrawn_because_its_host_lost_it(self, engine, database):
        bind(database)
        engine.monitor_reports("gpu1", "192.0.2.11")
        engine.monitor_reports("evil", "192.0.2.66", GPU)
        assert engine.host_of("GPU-a") == "gpu1"

    def test_nor_a_gpu_that_its_idle_host_does_not_report_for_once(self, engine, database):
        engine.monitor_reports("evil", "192.0.2.66", GPU)
        for _ in range(2):
            engine.monitor_reports("gpu1", "192.0.2.11")
            with database.read() as session:
                assert gpus.get(session, "GPU-a").withdrawn_reason == gpus.NOT_REPORTED
            engine.monitor_reports("evil", "192.0.2.66", GPU)
            assert engine.host_of("GPU-a") == "gpu1"
        engine.monitor_reports("gpu1", "192.0.2.11", GPU)
        with database.read() as session:
            assert gpus.get(session, "GPU-a").withdrawn_reason is None

    def test_a_gpu_that_both_hosts_no_longer_report_is_gone(self, engine):
        engine.monitor_reports("evil", "192.0.2.66", GPU)
        engine.monitor_reports("gpu1", "192.0.2.11")
        engine.monitor_reports("evil", "192.0.2.66")
        engine.monitor_reports("gpu1", "192.0.2.11")
        with pytest.raises(exceptions.NotFound):
            engine.host_of("GPU-a")

    def test_its_other_gpus_are_believed(self, engine):
        engine.monitor_reports("evil", "192.0.2.66", GPU, GpuInfo("GPU-b", 1, "L4", 1024, 8309))
        assert engine.host_of("GPU-b") == "evil"

    def test_its_readings_of_the_gpu_are_not_believed(self, engine, database):
        readings = {"GPU-a": Reading(mean_utilisation=100.0)}
        engine.monitor_reports("evil", "192.0.2.66", GPU, readings=readings)
        with database.read() as session:
            assert gpus.readings(session, ["GPU-a"]) == {}

    def test_operators_are_told_of_both_hosts_and_of_what_to_do(self, engine, database):
        engine.monitor_reports("evil", "192.0.2.66", GPU)
        (problem,) = engine.problems("evil")
        assert problem == (
            "evil reports GPU-a, which belongs to gpu1, so the report is not accepted; if the GPU was moved: "
            "gsaas gpus -adopt=GPU-a -host=evil; if not, look for an intruder on evil"
        )
        with database.read() as session:
            assert gpus.disputes(session, ["GPU-a"]) == {"GPU-a": ["evil"]}
            assert metrics.state(session, 60.0).disputed == 1
            found = [each.said for each in agents.check(session, 60.0, 60.0)]
        assert f"evil: {problem}" in found

    def test_the_dispute_ends_when_the_host_no_longer_names_the_gpu(self, engine, database):
        engine.monitor_reports("evil", "192.0.2.66", GPU)
        engine.monitor_reports("evil", "192.0.2.66")
        assert engine.problems("evil") == []
        with database.read() as session:
            assert gpus.disputes(session, ["GPU-a"]) == {}

    def test_a_gpu_moves_when_an_operator_consents_and_its_host_reports_it_again(
        self, engine, database
    ):
        moved = GpuInfo("GPU-a", 3, "NVIDIA L4", 23034, 8311)
        engine.monitor_reports("gpu2", "192.0.2.12", moved)
        engine.adopt("GPU-a", "gpu2")
        with database.read() as session:
            gpu = gpus.get(session, "GPU-a")
            assert (gpu.host_name, gpu.withdrawn_reason) == ("gpu2", gpus.AWAITS_REPORT)
        engine.monitor_reports("gpu2", "192.0.2.12", moved)
        with database.read() as session:
            gpu = gpus.get(session, "GPU-a")
            assert (gpu.host_name, gpu.device_index, gpu.daemon_port) == ("gpu2", 3, 8311)
            assert gpu.withdrawn_reason is None
        assert engine.problems("gpu2") == []

    def test_after_a_move_the_former_host_is_the_one_that_is_not_believed(self, engine):
        engine.monitor_reports("gpu2", "192.0.2.12", GPU)
        engine.adopt("GPU-a", "gpu2")
        engine.monitor_reports("gpu1", "192.0.2.11", GPU)
        assert engine.host_of("GPU-a") == "gpu2"
        assert "which belongs to gpu2" in engine.problems("gpu1")[0]

    def test_consent_is_for_one_host_and_not_for_another_that_names_the_gpu_too(self, engine):
        engine.monitor_reports("gpu2", "192.0.2.12", GPU)
        engine.monitor_reports("evil", "192.0.2.66", GPU)
        engine.adopt("GPU-a", "gpu2")
        engine.monitor_reports("evil", "192.0.2.66", GPU)
        engine.monitor_reports("gpu2", "192.0.2.12", GPU)
        assert engine.host_of("GPU-a") == "gpu2"

    def test_consent_needs_a_host_that_reports_the_gpu(self, engine):
        engine.monitor_reports("gpu2", "192.0.2.12")
        with pytest.raises(exceptions.GpuNotReported, match="gpu2 does not report GPU GPU-a"):
            engine.adopt("GPU-a", "gpu2")
        assert engine.host_of("GPU-a") == "gpu1"

    def test_a_gpu_that_leases_use_does_not_move_even_with_consent(self, engine, database):
        bind(database)
        engine.monitor_reports("gpu2", "192.0.2.12", GPU)
        with pytest.raises(exceptions.GpuInUse, match="lease-1"):
            engine.adopt("GPU-a", "gpu2")
        assert engine.host_of("GPU-a") == "gpu1"

    def test_a_host_that_is_forgotten_leaves_its_gpus_to_the_host_that_has_them_now(
        self, engine, database
    ):
        engine.monitor_reports("gpu2", "192.0.2.12", GPU)
        with database.write() as session:
            hosts.forget(session, "gpu1", timeout=None, servers_stay=False)
        engine.monitor_reports("gpu2", "192.0.2.12", GPU)
        assert engine.host_of("GPU-a") == "gpu2"
        assert engine.problems("gpu2") == []


class TestAddresses:
    @pytest.mark.parametrize(
        ("address", "what"),
        [
            ("127.0.0.1", "a loopback address"),
            ("169.254.169.254", "a link-local address"),
            ("224.0.0.1", "a multicast address"),
            ("255.255.255.255", "a reserved address"),
            ("0.0.0.0", "the address of no host"),
            ("10.0.0.1", "not in the GPU network, 192.0.2.0/24"),
        ],
    )
    def test_a_gpu_host_cannot_send_vms_out_of_the_gpu_network(
        self, engine, database, address, what
    ):
        bind(database)
        engine.monitor_reports("gpu1", address, GPU)
        assert mappings(engine) == [{"169.254.71.1:8308": "192.0.2.11:8308"}]
        (problem,) = engine.problems("gpu1")
        assert problem.startswith(f"gpu1 reports the address {address} on the GPU network")
        assert what in problem
        with database.read() as session:
            gpu = gpus.get(session, "GPU-a")
            assert gpu.withdrawn_reason == problem  # not offered; its lease stays
            assert gpu.used_mb == 2048

    def test_nothing_is_lost_when_the_address_is_right_again(self, engine, database):
        bind(database)
        engine.monitor_reports("gpu1", "10.0.0.1", GPU)
        engine.monitor_reports("gpu1", "192.0.2.11", GPU)
        with database.read() as session:
            assert gpus.get(session, "GPU-a").withdrawn_reason is None
        assert engine.problems("gpu1") == []

    def test_a_gpu_host_cannot_take_the_address_of_another(self, engine):
        engine.monitor_reports("evil", "192.0.2.11", GpuInfo("GPU-b", 0, "L4", 1024, 22))
        assert engine.problems("evil") == [
            "evil reports the address 192.0.2.11 on the GPU network, which is refused: gpu1 has it; correct one of "
            "the two, or gsaas hosts -forget=gpu1 if that is gone for good"
        ]
        with pytest.raises(exceptions.NotFound):
            engine.host_of("GPU-b")

    def test_nor_that_of_a_compute_host(self, engine):
        engine.endpoint_reports("compute1", "192.0.2.21")
        engine.monitor_reports("evil", "192.0.2.21", GpuInfo("GPU-b", 0, "L4", 1024, 22))
        assert "compute1 has it" in engine.problems("evil")[0]

    def test_a_host_with_both_agents_has_one_address_for_both(self, engine):
        engine.endpoint_reports("gpu1", "192.0.2.11")
        engine.monitor_reports("gpu1", "192.0.2.11", GPU)
        assert engine.problems("gpu1") == []

    @pytest.mark.parametrize("address", ["10.0.0.1", "192.0.2.11"])
    def test_a_compute_host_cannot_have_fences_admit_another_address(
        self, engine, database, address
    ):
        engine.endpoint_reports("compute1", "192.0.2.21")
        engine.endpoint_reports("compute1", address)
        with database.read() as session:
            assert endpoints.gpu_addresses(session, ["compute1"]) == {"compute1": "192.0.2.21"}
            (problem,) = endpoints.get(session, "compute1").report["problems"]
        assert f"the address {address}" in problem

    def test_a_binding_that_leads_out_of_the_gpu_network_is_not_sent(self, engine, database):
        """The address was stored before [gpu_network]prefixes was set."""
        bind(database)
        with database.write() as session:
            hosts.get(session, "gpu1").gpu_address = "10.0.0.1"
        assert mappings(engine) == []
        with database.read() as session:
            assert leases.get(session.connection(), "lease-1").status == Status.ACTIVE

    @pytest.mark.parametrize(("host", "address"), [("evil", "192.0.2.12"), ("gpu2", "192.0.2.66")])
    def test_an_address_that_the_operator_gave_is_not_taken_before_its_owner_reports(
        self, database, host, address
    ):
        network = GpuNetwork.of(["192.0.2.0/24"], {"gpu2": "192.0.2.12"})
        engine = Engine(database, network=network)
        engine.monitor_reports(host, address, GPU)
        engine.endpoint_reports(host, address)
        (problem,) = engine.problems(host)
        assert f"{host} reports the address {address}" in problem
        assert "[gpu_network]hosts gives" in problem
        with database.read() as session:
            assert hosts.with_gpu_address(session, address) == []
        engine.monitor_reports("gpu2", "192.0.2.12", GPU)
        assert engine.problems("gpu2") == []
        assert engine.host_of("GPU-a") == "gpu2"

    def test_an_address_that_the_operator_gives_is_its_owners_although_another_took_it_before(
        self, engine, database
    ):
        engine.monitor_reports("evil", "192.0.2.12", GpuInfo("GPU-b", 0, "L4", 1024, 22))
        engine.endpoint_reports("evil", "192.0.2.12")
        told = Engine(database, network=GpuNetwork.of([], {"gpu2": "192.0.2.12"}))
        told.monitor_reports("gpu2", "192.0.2.12", GpuInfo("GPU-c", 0, "L4", 1024, 22))
        assert told.problems("gpu2") == []
        assert told.host_of("GPU-c") == "gpu2"
        told.endpoint_reports("gpu2", "192.0.2.12")
        with database.read() as session:
            assert endpoints.get(session, "gpu2").report["problems"] == []
        # Although it goes on reporting it.
        told.monitor_reports("evil", "192.0.2.12", GpuInfo("GPU-b", 0, "L4", 1024, 22))
        told.endpoint_reports("evil", "192.0.2.12")
        assert "[gpu_network]hosts gives it to gpu2" in told.problems("evil")[0]
        with database.read() as session:
            assert hosts.with_gpu_address(session, "192.0.2.12") == ["gpu2"]
            assert endpoints.gpu_addresses(session, ["evil"]) == {}

    def test_fences_do_not_admit_a_compute_host_with_the_address_of_another(self, engine, database):
        engine.endpoint_reports("evil", "192.0.2.21")
        told = Engine(database, network=GpuNetwork.of([], {"compute1": "192.0.2.21"}))
        told.endpoint_reports("evil", "192.0.2.21")
        with database.read() as session:
            assert endpoints.gpu_addresses(session, ["evil"]) == {}

    def test_no_vm_is_led_to_an_address_that_the_operator_gives_to_another(self, engine, database):
        """Not even one whose lease began before; its GPU stays with its host until the lease is over."""
        bind(database)
        told = Engine(database, network=GpuNetwork.of([], {"gpu2": "192.0.2.11"}))
        told.monitor_reports("gpu1", "192.0.2.11", GPU)
        assert mappings(told) == []
        with database.read() as session:
            assert hosts.get(session, "gpu1").gpu_address == "192.0.2.11"

    def test_one_address_cannot_be_given_to_two_hosts(self):
        given = {"gpu1": "192.0.2.11", "gpu2": "192.0.2.11"}
        with pytest.raises(ValueError, match=r"\[gpu_network\]hosts: gpu1:192.0.2.11 cannot be"):
            GpuNetwork.of([], given)

    @pytest.mark.parametrize("prefix", ["127.0.0.0/8", "0.0.0.0/0", "169.254.0.0/16"])
    def test_a_configuration_that_would_allow_such_addresses_is_refused(self, prefix):
        with pytest.raises(ValueError, match=r"\[gpu_network\]prefixes"):
            GpuNetwork.of([prefix])


class Unreachable:
    """No monitor can be called here."""

    def apply(self, host: str, desired: object) -> dict:
        raise AgentCallFailed(f"the monitor of {host} does not answer")


class TestGrants:
    @pytest.fixture
    def keyring(self) -> Keyring:
        return Keyring(["test:" + "dGVz" * 11])

    @pytest.fixture
    def show(self, engine, database, keyring):
        """Show the grant of a lease at a gate; return the code of the refusal."""
        with database.write() as session:
            lease = rows.lease("lease-1", status=Status.ACTIVE, has_server=False, access="direct")
            session.add(lease)
            session.flush()
            session.add(rows.claim("lease-1"))
            grant = keyring.sign("lease-1", lease.project_id, timeutils.utcnow())
        inbox = RpcEndpoint(
            *(database, Agents(None, Unreachable()), engine.woken.append, Callers()),
            keyring=keyring,
        )

        def show(host: str, address: str) -> str | None:
            answer = inbox.grant_shown(CONTEXT, host, grant, address, "lease-1")
            return answer["code"]

        return show

    def admitted(self, database) -> str | None:
        with database.read() as session:
            return leases.get(session.connection(), "lease-1").admitted_address

    def test_a_host_cannot_redeem_the_grant_of_a_lease_that_has_no_gpu_there(
        self, engine, database, show
    ):
        engine.monitor_reports("evil", "192.0.2.66", GpuInfo("GPU-b", 0, "NVIDIA L4", 1024, 8308))
        assert show("evil", "192.0.2.66") == "gsaas.grant.stolen"
        assert self.admitted(database) is None
        assert show("gpu1", "192.0.2.7") is None
        assert self.admitted(database) == "192.0.2.7"

    @pytest.mark.parametrize(
        ("sender", "host", "may"),
        [
            ("gpu1@gsaas-monitor", "gpu1", True),
            ("evil@gsaas-monitor", "gpu1", False),
            ("gpu1@gsaas-rodvr", "gpu1", False),
        ],
    )
    def test_nor_say_that_it_was_shown_elsewhere(self, sender, host, may):
        assert may_send(sender, "grant_shown", {"host": host, "lease_id": "lease-1"}) is may
