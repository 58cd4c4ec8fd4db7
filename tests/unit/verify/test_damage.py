# SPDX-License-Identifier: Apache-2.0
"""What can be damaged in a cloud: each damage is found by its kinds, repaired, and nothing differs afterwards."""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from gsaas.cloud.base import ListedServer, Port, Server, ServerStatus
from gsaas.db import endpoints, leases
from gsaas.objects.address import Address
from gsaas.objects.binding import binding_of
from gsaas.objects.daemon import Admission, Daemon, DaemonState, DaemonStatus
from gsaas.objects.endpoint_audit import MISSING, SURPLUS, WRONG, KernelDifference
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.objects.request import Request
from gsaas.objects.reservation import Reservation, ReservationStatus
from tests.unit.engine.world import GPU_HOST, HOST
from tests.unit.verify.conftest import OTHER_HOST, Cloud

FOREIGN = "192.168.50.99"
GHOST = "00000000-0000-4000-8000-000000000000"
"""A lease that never was."""


class Damage(NamedTuple):
    """Something that happens to a cloud."""

    do: Callable[[Cloud], None]
    kinds: set[str]
    """The differences that it makes."""
    vm: Status | None = Status.ACTIVE
    """What the lease with the VM is after the repair; None: its row is gone."""


def delete_row_of_lease(cloud: Cloud, *, with_claims: bool = True) -> None:
    cloud.sql("UPDATE gpus SET exclusive_lease_id = NULL")
    cloud.sql("DELETE FROM lease_events WHERE lease_id = :id", id=cloud.vm)
    if with_claims:
        cloud.sql("DELETE FROM claims WHERE lease_id = :id", id=cloud.vm)
    server = cloud.world.cloud.servers.pop(cloud.vm)
    tagged = ListedServer(server.id, "p", server.host, frozenset({cloud.vm}))
    cloud.world.cloud.tagged[server.id] = tagged
    cloud.sql("DELETE FROM leases WHERE id = :id", id=cloud.vm)


def delete_row_of_lease_only(cloud: Cloud) -> None:
    delete_row_of_lease(cloud, with_claims=False)


def delete_row_of_cgpu(cloud: Cloud) -> None:
    cloud.sql("DELETE FROM claims WHERE lease_id = :id", id=cloud.vm)


def restore_backup_with_leases_that_ended(cloud: Cloud) -> None:
    backup = cloud.back_up()
    cloud.end(cloud.vm)
    cloud.restore(backup)


def restore_backup_without_new_leases(cloud: Cloud) -> None:
    backup = cloud.back_up()
    made = cloud.active(cloud.world.launch())
    cloud.restore(backup)
    server = cloud.world.cloud.servers.pop(made)
    tagged = ListedServer(server.id, "p", server.host, frozenset({made}))
    cloud.world.cloud.tagged[server.id] = tagged


def delete_server(cloud: Cloud) -> None:
    del cloud.world.cloud.servers[cloud.vm]


def move_server(cloud: Cloud) -> None:
    server = cloud.world.cloud.servers[cloud.vm]
    cloud.world.cloud.servers[cloud.vm] = replace(server, host=OTHER_HOST)


def lose_tag(cloud: Cloud) -> None:
    cloud.world.cloud.untagged.add(cloud.world.cloud.servers[cloud.vm].id)


def tag_server_of_nobody(cloud: Cloud) -> None:
    cloud.world.cloud.tagged["s-1"] = ListedServer("s-1", "blue", HOST, frozenset({GHOST}))


def tag_second_server(cloud: Cloud) -> None:
    server = ListedServer(
        "s-2", cloud.world.lease(cloud.vm).project_id, HOST, frozenset({cloud.vm})
    )
    cloud.world.cloud.tagged["s-2"] = server


def make_server_after_failure(cloud: Cloud) -> None:
    """Nova makes a server although its request failed, and nobody tells GSaaS of it."""
    cloud.world.cloud.refusal = "no valid host was found"
    lease_id = cloud.world.launch()
    cloud.world.reconcile(lease_id)
    assert cloud.status(lease_id) == Status.ERROR
    port = Port("p-1", "tapp-1", "fa:16:3e:00:00:07", "10.0.0.7")
    server = Server(str(uuid.uuid4()), ServerStatus.ACTIVE, HOST, port)
    cloud.world.cloud.servers[lease_id] = server


def delete_plain_server(cloud: Cloud) -> None:
    """Its owner has made it with Nova, and deletes it while nobody listens."""
    server_id, port_id = str(uuid.uuid4()), str(uuid.uuid4())
    port = Port(port_id, f"tap{port_id[:11]}", "fa:16:3e:00:00:06", "10.0.0.6")
    plain = cloud.world.cloud.plain
    plain[server_id] = Server(server_id, ServerStatus.ACTIVE, HOST, port)
    request = Request(1, "shared", 1024)
    lease = Lease(
        **request.to_dict(),
        **dict.fromkeys(("server_id", "plain_server_id"), server_id),
        **dict.fromkeys(("project_id", "user_id", "name"), "p"),
        id=str(uuid.uuid4()),
        status=Status.QUEUED,
        remoting="simulated",
    )
    cloud.active(cloud.world.claims.claim(lease, request).id)
    del plain[server_id]


def claim_twice_over(cloud: Cloud) -> None:
    gpu = gpu_of(cloud, cloud.vm)
    cloud.sql("UPDATE claims SET memory_mb = 8000, gpu_uuid = :gpu", gpu=gpu)


def lose_endpoint(cloud: Cloud) -> None:
    cloud.sql("DELETE FROM endpoints WHERE host_name = :host", host=HOST)


def port_of(cloud: Cloud, lease_id: str) -> str:
    port_id = cloud.world.lease(lease_id).port_id
    assert port_id is not None
    return port_id


def lose_binding(cloud: Cloud) -> None:
    del cloud.world.endpoint.bindings_by_host[HOST][port_of(cloud, cloud.vm)]


def lose_local_binding(cloud: Cloud) -> None:
    del cloud.world.endpoint.bindings_by_host[HOST][port_of(cloud, cloud.alloc)]


def bind_port_of_nobody(cloud: Cloud) -> None:
    bindings = cloud.world.endpoint.bindings_by_host[HOST]
    bindings["p-9"] = replace(
        bindings[port_of(cloud, cloud.vm)], port_id="p-9", tap="tapp-9", lease_id=GHOST
    )


def bind_cgpu_twice(cloud: Cloud) -> None:
    """The endpoint of a host that the server has left was down when the binding was removed there."""
    port_id = port_of(cloud, cloud.vm)
    binding = cloud.world.endpoint.bindings_by_host[HOST][port_id]
    cloud.world.endpoint.bindings_by_host[OTHER_HOST] = {port_id: binding}


def lead_binding_elsewhere(cloud: Cloud) -> None:
    bindings = cloud.world.endpoint.bindings_by_host[HOST]
    port_id = port_of(cloud, cloud.vm)
    wrong = dict.fromkeys(bindings[port_id].mappings, Address("192.168.50.11", 8399))
    bindings[port_id] = replace(bindings[port_id], mappings=wrong)


def give_port_another_address(cloud: Cloud) -> None:
    bindings = cloud.world.endpoint.bindings_by_host[HOST]
    port_id = port_of(cloud, cloud.vm)
    bindings[port_id] = replace(bindings[port_id], ip="10.0.0.99")


def damage_kernel(how: str) -> Callable[[Cloud], None]:
    def damage(cloud: Cloud) -> None:
        what = "the mapping 169.254.71.1:8308 of port p-9"
        cloud.world.endpoint.kernel[HOST] = [KernelDifference(how, what)]

    return damage


def daemon_of(cloud: Cloud, lease_id: str) -> str:
    return f"{lease_id}-0"


def run_daemon_of_nobody(cloud: Cloud) -> None:
    daemon = Daemon("GPU-0", 20050, 1024, GHOST)
    status = DaemonStatus(daemon, DaemonState.HEALTHY)
    cloud.world.monitor.daemons[GPU_HOST][daemon.key] = status


def lose_daemon(cloud: Cloud) -> None:
    del cloud.world.monitor.daemons[GPU_HOST][daemon_of(cloud, cloud.vm)]


def run_daemon_on_another_gpu(cloud: Cloud) -> None:
    daemons = cloud.world.monitor.daemons[GPU_HOST]
    key = daemon_of(cloud, cloud.vm)
    other = {"GPU-0": "GPU-1", "GPU-1": "GPU-0"}[daemons[key].daemon.gpu_uuid]
    daemons[key] = replace(daemons[key], daemon=replace(daemons[key].daemon, gpu_uuid=other))


def admit_nobody(cloud: Cloud) -> None:
    fences = cloud.world.monitor.fences
    fences[GPU_HOST] |= {Admission(FOREIGN, 20000)}


def flush_fence(cloud: Cloud) -> None:
    cloud.world.monitor.fences[GPU_HOST] = frozenset()


def gpu_of(cloud: Cloud, lease_id: str) -> str:
    return cloud.world.lease(lease_id).claims[0].gpu_uuid


def count_too_much(cloud: Cloud) -> None:
    cloud.sql("UPDATE gpus SET used_mb = 8192 WHERE uuid = :gpu", gpu=gpu_of(cloud, cloud.vm))


def count_too_little(cloud: Cloud) -> None:
    gpu = gpu_of(cloud, cloud.vm)
    cloud.sql("UPDATE gpus SET used_mb = 0, leases = 0 WHERE uuid = :gpu", gpu=gpu)


def keep_for_no_reservation(cloud: Cloud) -> None:
    cloud.sql("UPDATE gpus SET reserved_mb = 512 WHERE uuid = 'GPU-0'")


def claim_for_queue(cloud: Cloud) -> None:
    """A lease that waits in the queue has claims already: it could never be served."""
    columns = "lease_id, position, gpu_uuid, memory_mb"
    cloud.sql(f"INSERT INTO claims ({columns}) VALUES (:id, 0, 'GPU-0', 512)", id=GHOST)
    lease = Lease(
        **Request(1, "shared", 8000).to_dict(),
        **dict.fromkeys(("project_id", "user_id", "name"), "p"),
        id=GHOST,
        status=Status.QUEUED,
        queued_at=cloud.world.database.now(),
        remoting="simulated",
    )
    cloud.world.database.change(lambda connection: leases.insert(connection, lease))


def give_share_to_nobody(cloud: Cloud) -> None:
    now, request = cloud.world.database.now(), Request(1, "shared", 1024)
    reservation = Reservation(
        *("r-1", "p", "u", "course", ReservationStatus.PENDING, request.to_dict()),
        *(now, now + datetime.timedelta(hours=1), now),
    )
    cloud.world.claims.reservations.create(reservation, request)
    cloud.world.claims.reservations.audit()
    cloud.sql("UPDATE reserved_shares SET lease_id = :id", id=GHOST)
    cloud.sql("UPDATE gpus SET reserved_mb = 0")


def leave_usage_open(cloud: Cloud) -> None:
    cloud.world.cloud.refusal = "no valid host was found"
    lease_id = cloud.world.launch()
    cloud.world.reconcile(lease_id)
    assert cloud.status(lease_id) == Status.ERROR
    cloud.sql("UPDATE leases SET released_at = NULL WHERE id = :id", id=lease_id)


def release_by_hand(cloud: Cloud) -> None:
    """An operator has written into the table that a lease is over."""
    cloud.sql(
        "UPDATE leases SET status = 'RELEASED', released_at = updated_at WHERE id = :id",
        id=cloud.vm,
    )


LEFT_OF_LEASE = {
    "server-of-nobody",
    "binding-of-nobody",
    "daemon-of-nobody",
    "admission-of-nobody",
}
NOTHING_OF_LEASE = {"binding-missing", "daemon-missing", "admission-missing"}

DAMAGES: dict[str, Damage] = {
    "the row of a lease, and all that belongs to it, is deleted": Damage(
        delete_row_of_lease, {"gpu-count", *LEFT_OF_LEASE}, None
    ),
    "only the row of a lease is deleted": Damage(
        delete_row_of_lease_only, {"claim-of-nobody", *LEFT_OF_LEASE}, None
    ),
    "the row of a cGPU is deleted": Damage(
        delete_row_of_cgpu,
        {"gpu-count", "cgpus-lost", "daemon-of-nobody", "admission-of-nobody"},
        Status.ERROR,
    ),
    "a backup is restored whose leases have ended": Damage(
        restore_backup_with_leases_that_ended,
        {"server-gone", *NOTHING_OF_LEASE},
        Status.RELEASED,
    ),
    "a backup is restored that lacks newer leases": Damage(
        restore_backup_without_new_leases, LEFT_OF_LEASE
    ),
    "a server is deleted while nobody listens": Damage(
        delete_server, {"server-gone"}, Status.RELEASED
    ),
    "a plain server is deleted while nobody listens": Damage(delete_plain_server, {"server-gone"}),
    "a server moves while nobody listens": Damage(move_server, {"server-moved"}),
    "a server loses the tag of its lease": Damage(lose_tag, {"tag-lost"}),
    "a server has the tag of a lease that never was": Damage(
        tag_server_of_nobody, {"server-of-nobody"}
    ),
    "a second server has the tag of a lease": Damage(tag_second_server, {"server-second"}),
    "a server appears after its lease has failed": Damage(
        make_server_after_failure, {"server-outlived"}
    ),
    "an endpoint loses the binding of a VM": Damage(lose_binding, {"binding-missing"}),
    "an endpoint loses the binding of a lease without a VM": Damage(
        lose_local_binding, {"binding-missing"}
    ),
    "an endpoint has a binding of nobody": Damage(bind_port_of_nobody, {"binding-of-nobody"}),
    "two endpoints have the binding of one cGPU": Damage(bind_cgpu_twice, {"binding-of-nobody"}),
    "a masked address leads to another GPU": Damage(lead_binding_elsewhere, {"binding-wrong"}),
    "a binding has another address of the VM": Damage(give_port_another_address, {"binding-wrong"}),
    "the kernel lacks a map element": Damage(damage_kernel(MISSING), {"map-missing"}),
    "the kernel has a map element of nobody": Damage(damage_kernel(SURPLUS), {"map-surplus"}),
    "a map element has another value": Damage(damage_kernel(WRONG), {"map-wrong"}),
    "a daemon of nobody runs": Damage(run_daemon_of_nobody, {"daemon-of-nobody"}),
    "a daemon is missing": Damage(lose_daemon, {"daemon-missing"}),
    "a daemon serves another GPU": Damage(run_daemon_on_another_gpu, {"daemon-wrong"}),
    "a fence admits nobody's address": Damage(admit_nobody, {"admission-of-nobody"}),
    "a fence is flushed": Damage(flush_fence, {"admission-missing"}),
    "a GPU counts too much": Damage(count_too_much, {"gpu-count"}),
    "a GPU counts too little": Damage(count_too_little, {"gpu-count"}),
    "a GPU keeps something for no reservation": Damage(keep_for_no_reservation, {"gpu-count"}),
    "a lease in the queue has claims": Damage(claim_for_queue, {"gpu-count", "claim-of-nobody"}),
    "a share of a reservation is nobody's": Damage(give_share_to_nobody, {"share-of-nobody"}),
    "the usage of a failed lease goes on": Damage(leave_usage_open, {"usage-open"}),
    "a lease is set to RELEASED by hand": Damage(
        release_by_hand,
        {"lease-left-something", "daemon-of-nobody", "admission-of-nobody"},
        Status.RELEASED,
    ),
}


def test_a_cloud_that_is_as_it_should_be_has_no_differences(cloud: Cloud) -> None:
    assert cloud.differences() == []


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_damage_is_found_and_repaired(cloud: Cloud, damage: Damage) -> None:
    damage.do(cloud)

    assert cloud.kinds() == damage.kinds
    assert set(cloud.repair().values()) == {None}

    assert cloud.differences() == []
    assert cloud.status(cloud.alloc) == Status.ACTIVE
    if damage.vm is not None:
        assert cloud.status(cloud.vm) == damage.vm
    if damage.vm is Status.ACTIVE:
        lease = cloud.world.lease(cloud.vm)
        bound = cloud.world.endpoint.bindings_by_host[lease.bound_host]
        assert bound[lease.port_id] == binding_of(lease)


def test_the_operators_guide_lists_every_kind() -> None:
    guide = (Path(__file__).parents[3] / "doc/operator-guide.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z-]+.*) \|.*\|.*\|$", guide.partition("## Verifying\n")[2], re.M)
    listed = {name for row in rows for name in re.findall(r"`([a-z…-]+)`", row.partition("|")[0])}
    found = set().union(*(damage.kinds for damage in DAMAGES.values()))
    found |= {"endpoint-missing", "gpu-over-committed"}  # see below
    groups = {name.removesuffix("…") for name in listed if name.endswith("…")}
    assert {name for name in found if not name.startswith(tuple(groups))} == {
        name for name in listed if not name.endswith("…")
    }
    assert all(any(name.startswith(group) for name in found) for group in groups)


def test_no_repair_deletes_a_server_that_a_lease_does_not_have(cloud: Cloud) -> None:
    """Its owner may have anything on it, and can set any tag."""
    tag_server_of_nobody(cloud)
    cloud.repair()
    assert cloud.world.cloud.deleted == []
    assert cloud.world.cloud.tagged["s-1"].lease_ids == frozenset()


def test_a_lease_that_lost_cgpus_leaves_its_server_to_its_owner(cloud: Cloud) -> None:
    delete_row_of_cgpu(cloud)
    cloud.repair()
    lease = cloud.world.lease(cloud.vm)
    assert "lost 1 of its 1 cGPUs" in lease.fault_message
    assert cloud.world.cloud.deleted == []
    assert cloud.world.used_mb() == 4096  # the other lease's


def test_what_only_an_operator_can_repair_says_what_to_do(cloud: Cloud) -> None:
    lose_endpoint(cloud)
    found = cloud.differences()
    assert {one.kind for one in found} == {"endpoint-missing", "admission-of-nobody"}
    [lost, *_] = found
    assert lost.step is None
    assert f"start gsaas-rodvr on {HOST}" in lost.todo
    assert cloud.repair()[lost] == lost.todo
    with cloud.world.database.write() as session:
        endpoints.register(session, HOST, {"bindings": {}, "gpu_address": "192.168.50.21"})


def test_a_gpu_that_is_claimed_twice_over_waits_for_the_end_of_a_lease(cloud: Cloud) -> None:
    """Which one ends is the operator's decision."""
    claim_twice_over(cloud)
    [found] = [one for one in cloud.differences() if one.kind == "gpu-over-committed"]
    assert found.step is None
    assert cloud.vm in found.todo
    assert cloud.alloc in found.todo
    cloud.sql("DELETE FROM claims WHERE lease_id = :id", id=cloud.alloc)
    assert "gpu-count" in cloud.kinds()
    cloud.repair()
    assert not {"gpu-count", "gpu-over-committed"} & cloud.kinds()


def test_a_lease_that_moves_to_a_gpu_that_is_claimed_twice_over_is_named(cloud: Cloud) -> None:
    claim_twice_over(cloud)
    cloud.sql("UPDATE claims SET position = -1 WHERE lease_id = :id", id=cloud.alloc)
    [found] = [one for one in cloud.differences() if one.kind == "gpu-over-committed"]
    assert cloud.alloc in found.todo
