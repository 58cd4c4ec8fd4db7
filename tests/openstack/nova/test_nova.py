# SPDX-License-Identifier: Apache-2.0
"""Servers of a real Nova: made in their owners' names, refused for reasons, found again, and gone without trace."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from openstack.connection import Connection
from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.cloud import server_tags
from gsaas.cloud.base import Owner
from gsaas.cloud.nova import cloud as nova_cloud
from gsaas.cloud.nova.cloud import NovaCloud
from gsaas.context import RequestContext
from gsaas.db import leases
from gsaas.engine.reconciler import owner_of
from gsaas.objects.lifecycle import Status
from gsaas.objects.timings import ACTIVATION, PHASES
from tests.openstack import tokens
from tests.openstack.bed import nova, processes, settings
from tests.openstack.launches import GPU_HOST, Launches, caller
from tests.openstack.nova_proxy import NovaProxy
from tests.support import certificates

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(900)]

NOBODYS = "8e9d6ad2-5a39-4d1f-a3b9-4b4a0ad9d9a1"
CREATE = "POST /v2.1/servers"
LIST = "GET /v2.1/servers/detail"
ONE = "GET /v2.1/servers/[^/]{36}"


@pytest.fixture
def proxy() -> Iterator[NovaProxy]:
    proxy = NovaProxy()
    yield proxy
    proxy.close()


@pytest.fixture
def behind(proxy: NovaProxy, make_launches: Callable) -> Iterator[Launches]:
    """A GSaaS that finds Nova behind the proxy, and does not wait for an answer for long.

    A Nova that works may take ten seconds on a busy machine.
    """
    launches = make_launches(proxy.url)
    launches.conf.set_override("timeout", 20, "service_user")
    launches.conf.set_override("connect_retries", 0, "nova")
    yield launches
    proxy.mend()  # also where a test failed: what is left is released through it


@contextmanager
def limited(admin: Connection, project_id: str, **quota: int) -> Iterator[None]:
    """Let a project have no more than that for a while."""
    path = f"/os-quota-sets/{project_id}"
    before = admin.compute.get(path).json()["quota_set"]

    def allow(quota: dict[str, int]) -> None:
        answer = admin.compute.put(path, json={"quota_set": {**quota, "force": True}})
        answer.raise_for_status()

    allow(quota)
    try:
        yield
    finally:
        allow({name: before[name] for name in quota})


# -- what is made ----------------------------------------------------------------------------------


def test_a_server_is_its_callers_and_everything_of_it_goes_with_its_lease(
    launches: Launches, owner: RequestContext, admin: Connection, made: Callable
):
    lease = launches.active(owner, metadata={"team": "blue"}, tags=["mine"])
    server = admin.compute.get_server(lease.server_id)
    assert (server.project_id, server.user_id) == (owner.project_id, owner.user_id)
    assert server.metadata == {"team": "blue"}
    assert set(server.tags) == {"mine", server_tags.tag(lease.id)}
    assert server.compute_host == lease.server_host == lease.bound_host
    (port,) = admin.network.ports(device_id=server.id)
    assert (lease.port_id, lease.port_mac) == (port.id, port.mac_address)
    assert lease.port_ip == port.fixed_ips[0]["ip_address"]
    assert lease.port_tap == f"tap{port.id[:11]}"
    assert list(launches.endpoint.bindings) == [server.compute_host]

    launches.release(lease.id)
    launches.drive(lease.id, Status.RELEASED)
    launches.check_nothing_is_held(lease.id)
    assert made(lease.id) == []
    assert list(admin.network.ports(device_id=server.id)) == []


def test_every_phase_of_a_launch_is_timed(launches: Launches, owner: RequestContext):
    lease = launches.active(owner)
    # Those are the API's, and of leases that wait.
    assert set(PHASES) - lease.timings.keys() == {"gpu_selection", "check", "queue"}


def test_the_port_of_the_first_network_carries_the_binding(
    second_network: Any, launches: Launches, owner: RequestContext, tenant: Connection
):
    """The network stands before the launches, so that it goes after them."""
    first = launches.least["networks"][0]
    for networks in ([first, {"uuid": second_network.id}], [{"uuid": second_network.id}, first]):
        lease = launches.active(owner, networks=networks)
        assert tenant.network.get_port(lease.port_id).network_id == networks[0]["uuid"]


@pytest.fixture
def second_network(tenant: Connection) -> Iterator[Any]:
    name = f"second-{uuid.uuid4().hex[:8]}"
    network = tenant.network.create_network(name=name)
    tenant.network.create_subnet(network_id=network.id, ip_version=4, cidr="10.78.0.0/24")
    yield network
    for _ in range(100):  # ports of deleted servers may outlive them by a moment
        if not any(
            port.device_owner.startswith("compute:")
            for port in tenant.network.ports(network_id=network.id)
        ):
            break
        time.sleep(0.2)
    tenant.network.delete_network(network.id)


# -- where it is made ------------------------------------------------------------------------------


def test_a_local_lease_has_its_server_on_the_host_of_its_gpus(
    launches: Launches, owner: RequestContext
):
    assert launches.active(owner, "local").server_host == GPU_HOST


def test_a_remote_lease_has_its_server_anywhere_else(launches: Launches, owner: RequestContext):
    hosts = {launches.active(owner, "remote").server_host for _ in range(3)}
    assert hosts <= set(settings.FAKE_HOSTS) - {GPU_HOST}


def test_a_remote_lease_is_refused_where_no_other_host_has_room(
    launches: Launches, owner: RequestContext, tenant: Connection
):
    """Only the real hypervisor runs guests; and its GPUs are those that the lease gets."""
    with pytest.raises(exceptions.ServerRefused, match="no compute host but those of its GPUs"):
        launches.cloud.create(
            owner,
            Owner(NOBODYS, owner.project_id, launches.lease(launches.claim(owner)).created_at),
            {**launches.least, "flavorRef": tenant.compute.find_flavor(settings.FLAVOR).id},
            "",
            None,
            [settings.REAL_HOST],
        )


def test_where_operators_do_not_allow_it_the_refusal_names_the_rule(
    behind: Launches, proxy: NovaProxy, owner: RequestContext, made: Callable
):
    """Without the service's token, Nova sees what it would see without the rule: a tenant who chooses a host."""
    proxy.fault(CREATE, hidden=("X-Service-Token",))
    lease = behind.failed(owner, "local")
    assert "compute:servers:create:requested_destination" in lease.fault_message
    assert "-locality=any" in lease.fault_message
    assert made(lease.id) == []


def test_tenants_cannot_choose_a_host_behind_our_back(launches: Launches, owner: RequestContext):
    """They could, if their fields were sent with our token unread."""
    with pytest.raises(exceptions.ServerRefused, match="does not choose its VM's host"):
        launches.cloud.check(owner, {**launches.least, "host": settings.REAL_HOST})


# -- what is refused before anything is made ---------------------------------------------------------


def test_what_nova_would_make_passes_the_check(launches: Launches, owner: RequestContext):
    groups = [{"name": "default"}]
    assert launches.cloud.check(owner, {**launches.least, "security_groups": groups}) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"imageRef": NOBODYS}, f"no image {NOBODYS} that you can use"),
        ({"flavorRef": NOBODYS}, f"no flavor {NOBODYS} that you can use"),
        ({"networks": [{"uuid": NOBODYS}]}, f"no network {NOBODYS} that you can use"),
        ({"networks": [{"port": NOBODYS}]}, f"no port {NOBODYS} that you can use"),
        ({"networks": [{}]}, "a uuid or a port"),
        ({"key_name": "nobodys"}, "no keypair nobodys that you can use"),
        ({"security_groups": [{"name": "nobodys"}]}, "no security group nobodys"),
    ],
)
def test_what_the_caller_cannot_use_is_refused_by_name(
    launches: Launches, owner: RequestContext, fields: dict[str, Any], words: str
):
    with pytest.raises(exceptions.ServerRefused, match=words):
        launches.cloud.check(owner, {**launches.least, **fields})


def test_another_projects_network_is_as_unknown_as_none(
    launches: Launches, owner: RequestContext, connect: Callable[[str], Connection]
):
    other = connect(settings.TENANTS[1]).network.find_network(settings.NETWORK).id
    with pytest.raises(exceptions.ServerRefused, match=f"no network {other} that you can use"):
        launches.cloud.check(owner, {**launches.least, "networks": [{"uuid": other}]})


def test_a_quota_that_is_used_up_is_said_with_its_numbers(
    launches: Launches, owner: RequestContext, admin: Connection
):
    with (
        limited(admin, owner.project_id, ram=63),
        pytest.raises(
            exceptions.ServerRefused, match=r"MiB of memory .*: \d+ used, 64 asked, 63 allowed"
        ),
    ):
        launches.cloud.check(owner, launches.least)


def test_without_a_network_the_only_one_is_taken_and_several_are_asked_about(
    launches: Launches, owner: RequestContext, request: pytest.FixtureRequest
):
    launches.least.pop("networks")
    assert launches.cloud.check(owner, launches.least) == []
    assert launches.active(owner).port_ip.startswith("10.77.")
    request.getfixturevalue("second_network")
    with pytest.raises(exceptions.ServerRefused, match=r"can use 2: .*private.*; name one"):
        launches.cloud.check(owner, launches.least)


def test_a_network_without_ipv4_is_refused(
    launches: Launches, owner: RequestContext, tenant: Connection
):
    network = tenant.network.create_network(name=f"six-{uuid.uuid4().hex[:8]}")
    try:
        tenant.network.create_subnet(network_id=network.id, ip_version=6, cidr="fd00:71::/64")
        with pytest.raises(exceptions.ServerRefused, match="no IPv4 subnet"):
            launches.cloud.check(owner, {**launches.least, "networks": [{"uuid": network.id}]})
    finally:
        tenant.network.delete_network(network.id)


# -- what fails afterwards ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"imageRef": NOBODYS}, "image"),
        ({"flavorRef": NOBODYS}, NOBODYS),
        ({"networks": [{"uuid": NOBODYS}]}, NOBODYS),
        ({"networks": [{"port": NOBODYS}]}, NOBODYS),
        ({"key_name": "nobodys"}, "Invalid key_name"),
        ({"security_groups": [{"name": NOBODYS}]}, NOBODYS),
    ],
)
def test_what_went_away_between_check_and_creation_ends_the_launch_in_novas_words(
    launches: Launches, owner: RequestContext, made: Callable, fields: dict[str, Any], words: str
):
    lease = launches.failed(owner, **fields)
    assert lease.fault_step == "create-server"
    assert words in lease.fault_message
    assert made(lease.id) == []


def test_a_quota_that_others_used_up_meanwhile_ends_the_launch_in_novas_words(
    launches: Launches, owner: RequestContext, admin: Connection, made: Callable
):
    with limited(admin, owner.project_id, instances=0):
        lease = launches.failed(owner)
    assert "Quota exceeded for instances" in lease.fault_message
    assert made(lease.id) == []


@pytest.fixture
def huge(admin: Connection) -> Iterator[str]:
    """The id of a flavor for which no host has room."""
    name = f"huge-{uuid.uuid4().hex[:8]}"
    flavor = admin.compute.create_flavor(name=name, ram=1, vcpus=1, disk=10**6)
    yield flavor.id
    admin.compute.delete_flavor(flavor.id)


def test_a_server_for_which_there_is_no_host_ends_in_error_and_is_deleted(
    launches: Launches, owner: RequestContext, huge: str, made: Callable
):
    lease = launches.failed(owner, flavorRef=huge)
    assert lease.fault_step == "boot-server"
    assert "No valid host was found" in lease.fault_message
    launches.await_that(lambda: made(lease.id) == [])


def test_a_fault_that_nova_stores_a_moment_after_the_state_is_told(
    behind: Launches, proxy: NovaProxy, owner: RequestContext, huge: str
):
    looks = []

    def without_fault_at_first(content: bytes) -> bytes:
        answer = json.loads(content)
        server = answer.get("server", {})  # not in the answer that there is none
        if server.get("status") == "ERROR" and not looks:
            looks.append(server.pop("fault", None))
            server["updated"] = f"{timeutils.utcnow():%Y-%m-%dT%H:%M:%S}Z"  # the look may come late
        return json.dumps(answer).encode()

    proxy.fault(ONE, rewritten=without_fault_at_first)
    lease = behind.failed(owner, flavorRef=huge)
    assert len(looks) == 1
    assert "No valid host was found" in lease.fault_message


def test_a_token_that_was_revoked_in_the_middle_asks_to_log_in_again(
    launches: Launches, tenant: Connection, admin: Connection, connect: Callable, made: Callable
):
    short = caller(connect(settings.TENANT_OF_ENGINES))
    lease_id = launches.launch(short)
    headers = {"X-Subject-Token": short.auth_token}
    admin.identity.delete("/auth/tokens", headers=headers)
    lease = launches.drive(lease_id, Status.ERROR)
    launches.check_nothing_is_held(lease.id)
    assert "log in again" in lease.fault_message
    assert made(lease.id) == []


def test_a_token_that_ends_in_the_middle_is_good_for_the_launch_it_began(
    launches: Launches, owner: RequestContext
):
    """The service's token beside it vouches for it, as for every service that works on somebody's behalf."""
    owner.auth_token = tokens.expired(owner.auth_token)
    alone = requests.get(
        f"{nova.URL}/servers", headers={"X-Auth-Token": owner.auth_token}, timeout=60
    )
    assert alone.status_code == 401
    launches.active(owner)


def test_a_token_of_the_service_that_ends_in_the_middle_is_replaced(
    launches: Launches, owner: RequestContext, admin: Connection
):
    token = launches.cloud._client_factory.for_service().nova.client.get_token()
    admin.identity.delete("/auth/tokens", headers={"X-Subject-Token": token})
    launches.active(owner)


@pytest.mark.alone
def test_a_server_that_never_becomes_active_ends_in_error_and_is_deleted(
    launches: Launches, owner: RequestContext, made: Callable
):
    host = settings.FAKE_HOSTS[2]
    with frozen(host):
        lease_id = launches.launch(owner)
        launches.pin(lease_id, host)
        while launches.lease(lease_id).status != Status.BOOTING:
            launches.turn(lease_id)
        launches.conf.set_override("boot_timeout", 5, "engine")
        while launches.lease(lease_id).status != Status.ERROR:
            launches.turn(lease_id)
    lease = launches.drive(lease_id, Status.ERROR)
    launches.check_nothing_is_held(lease_id)
    assert "was not ready within 5 s" in lease.fault_message
    launches.await_that(lambda: made(lease_id) == [])


@contextmanager
def frozen(host: str) -> Iterator[None]:
    """Have the nova-compute of *host* do nothing for a while; Nova takes it to be alive for a minute."""
    pid = processes.running(f"nova-compute-{host}").pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_port_whose_tap_never_appears_ends_in_error(
    launches: Launches, owner: RequestContext, made: Callable
):
    launches.endpoint.tap_exists = False
    lease_id = launches.launch(owner)
    while ACTIVATION not in (launches.lease(lease_id).timings or {}):
        launches.turn(lease_id)
    launches.conf.set_override("boot_timeout", 5, "engine")
    lease = launches.drive(lease_id, Status.ERROR)
    launches.check_nothing_is_held(lease_id)
    assert "did not connect it to its GPUs" in lease.fault_message
    launches.await_that(lambda: made(lease_id) == [])


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_nova_that_fails_ends_the_launch_and_leaves_nothing(
    behind: Launches, proxy: NovaProxy, owner: RequestContext, made: Callable, status: int
):
    fault = proxy.fault(CREATE, status=status)
    lease = behind.failed(owner)
    assert (lease.fault_step, fault.seen) == ("create-server", 1)
    assert lease.fault_message == (
        f"Nova failed (HTTP {status}) when GSaaS requested the server; launch again"
    )
    assert made(lease.id) == []


def test_an_answer_that_was_lost_is_no_reason_to_ask_twice(
    behind: Launches, proxy: NovaProxy, owner: RequestContext, made: Callable
):
    fault = proxy.fault(CREATE, lost=True)
    lease = behind.active(owner)
    assert fault.seen == 1
    assert [server.id for server in made(lease.id)] == [lease.server_id]


def test_a_server_that_a_silent_nova_makes_later_is_deleted_when_it_turns_up(
    behind: Launches, proxy: NovaProxy, owner: RequestContext, made: Callable
):
    later = threading.Event()
    proxy.fault(CREATE, silent=later)
    with behind.running():
        lease = behind.failed(owner)
        assert lease.fault_message.startswith("Nova does not answer")
        later.set()
        behind.await_that(lambda: made(lease.id))
        behind.await_that(lambda: made(lease.id) == [])


def test_what_notifications_missed_is_found_by_asking_nova_what_changed(
    behind: Launches, proxy: NovaProxy, owner: RequestContext, made: Callable
):
    later = threading.Event()
    proxy.fault(CREATE, silent=later)
    lease = behind.failed(owner)
    later.set()
    behind.await_that(lambda: made(lease.id))
    behind.cloud.audit_interval = 0.5
    behind.cloud.notifies = False
    with behind.running():
        behind.await_that(lambda: made(lease.id) == [])


def test_what_changed_is_read_page_by_page_and_deleted_servers_too(
    launches: Launches, owner: RequestContext, monkeypatch: pytest.MonkeyPatch
):
    began = timeutils.utcnow()
    lease = launches.active(owner)
    launches.release(lease.id)
    launches.drive(lease.id, Status.RELEASED)
    monkeypatch.setattr(nova_cloud, "_PAGE", 1)
    found = [change.server_id for change in launches.cloud.server_changes(began)]
    assert found.count(lease.server_id) == 1
    assert len(found) == len(set(found))
    # An engine that has just started learns from `server_hosts` which servers are gone.
    found = [change.server_id for change in launches.cloud.server_changes(None)]
    assert lease.server_id not in found


def test_a_second_server_of_a_lease_is_deleted_and_one_with_its_tag_alone_stays(
    launches: Launches, owner: RequestContext, admin: Connection, tenant: Connection, made: Callable
):
    lease = launches.active(owner)
    shown = admin.compute.get(f"/servers/{lease.server_id}", microversion="2.90").json()["server"]

    def boot(name: str, **more: str) -> str:
        """As a request that was sent twice."""
        body = {"name": name, **launches.least, "tags": [server_tags.tag(lease.id)], **more}
        answer = tenant.compute.post("/servers", json={"server": body}, microversion="2.90")
        return answer.json()["server"]["id"]

    second = boot("second", user_data=shown["OS-EXT-SRV-ATTR:user_data"])
    tagged = boot("tagged")
    belongs = owner_of(launches.lease(lease.id))
    assert launches.cloud.delete_second(belongs, second)
    assert not launches.cloud.delete_second(belongs, tagged)
    assert not launches.cloud.delete_second(belongs, lease.server_id)
    expected = {lease.server_id, tagged}
    launches.await_that(lambda: {server.id for server in made(lease.id)} == expected)
    tenant.compute.delete_server(tagged)
    launches.await_that(lambda: len(made(lease.id)) == 1)


def test_a_nova_that_is_away_for_a_while_disturbs_nothing_that_works(
    behind: Launches, proxy: NovaProxy, owner: RequestContext
):
    lease = behind.active(owner)
    for what in ({"status": 503}, {"silent": threading.Event()}):
        proxy.mend()
        fault = proxy.fault(".*", **what)
        assert behind.reconciler.reconcile(lease.id) is not None  # Nova is asked again soon
        assert fault.seen > 0
        if "silent" in what:
            what["silent"].set()
        assert behind.lease(lease.id).status == Status.ACTIVE
    assert list(behind.endpoint.bindings) == [lease.server_host]
    proxy.mend()
    assert behind.reconciler.reconcile(lease.id) is None
    assert behind.lease(lease.id).status == Status.ACTIVE


def test_a_nova_that_is_gone_while_the_server_boots_ends_the_launch_and_the_server_later(
    behind: Launches, proxy: NovaProxy, owner: RequestContext, made: Callable
):
    behind.endpoint.tap_exists = False
    lease_id = behind.launch(owner)
    while behind.lease(lease_id).status != Status.BOOTING:
        behind.turn(lease_id)
    proxy.fault(".*", status=503)
    behind.conf.set_override("boot_timeout", 5, "engine")
    while behind.lease(lease_id).status != Status.ERROR:
        behind.turn(lease_id)
    lease = behind.lease(lease_id)
    assert "not ready within 5 s, and then the cloud did not answer" in lease.fault_message
    proxy.mend()
    behind.drive(lease_id, Status.ERROR)
    behind.check_nothing_is_held(lease_id)
    behind.await_that(lambda: made(lease_id) == [])


def test_a_release_while_nova_is_away_frees_the_gpus_at_once_and_the_server_later(
    behind: Launches, proxy: NovaProxy, owner: RequestContext, made: Callable
):
    lease = behind.active(owner)
    behind.release(lease.id)
    proxy.fault(".*", status=503)
    behind.reconciler.reconcile(lease.id)
    assert (behind.lease(lease.id).status, behind.lease(lease.id).claims) == (
        Status.RELEASING,
        (),
    )
    proxy.mend()
    behind.drive(lease.id, Status.RELEASED)
    assert made(lease.id) == []


# -- how it is reached -----------------------------------------------------------------------------


def test_nova_is_found_in_the_region_and_at_the_interface_that_its_section_names(
    proxy: NovaProxy, make_launches: Callable, owner: RequestContext, admin: Connection
):
    """Also if it was registered after GSaaS had logged in."""
    region = f"region-{uuid.uuid4().hex[:8]}"
    launches = make_launches()
    launches.conf.set_override("region_name", region, "nova")
    launches.conf.set_override("valid_interfaces", ["internal"], "nova")
    with pytest.raises(exceptions.CloudUnavailable):
        launches.cloud.check(owner, launches.least)
    service = next(iter(admin.identity.services(type="compute")))
    admin.identity.create_region(id=region)
    endpoint = admin.identity.create_endpoint(
        service_id=service.id, interface="internal", region_id=region, url=proxy.url
    )
    passed = proxy.fault("GET .*")
    try:
        assert launches.cloud.check(owner, launches.least) == []
        assert passed.seen > 0
    finally:
        admin.identity.delete_endpoint(endpoint)
        admin.identity.delete_region(region)


def test_a_nova_that_speaks_tls_is_believed_if_cafile_names_its_authority(
    make_launches: Callable, owner: RequestContext, tmp_path: Path
):
    certificate = certificates.self_signed(tmp_path)
    proxy = NovaProxy(certificate)
    try:
        launches = make_launches(proxy.url)
        with pytest.raises(exceptions.CloudUnavailable, match="Nova does not answer"):
            NovaCloud.configured(launches.conf).check(owner, launches.least)
        launches.conf.set_override("cafile", certificate[0], "service_user")
        assert launches.cloud.check(owner, launches.least) == []
    finally:
        proxy.close()


# -- whose server is it? -----------------------------------------------------------------------------


def test_a_server_that_nobody_wrote_down_is_found_by_its_tag(
    launches: Launches, owner: RequestContext, made: Callable
):
    """The engine died between Nova's answer and the database; its successor has no token."""
    lease_id = launches.launch(owner)
    lease = launches.lease(lease_id)
    with launches.database.writing() as connection:
        assert leases.acquire_ownership(connection, lease, "an engine that died", 0.0)
    since = Owner(lease_id, owner.project_id, lease.created_at)
    server = launches.cloud.create(owner, since, {"name": "x", **launches.least}, "", None, [])
    launches.reconciler.callers.forget(lease_id)
    lease = launches.drive(lease_id, Status.ACTIVE)
    assert lease.server_id == server.id
    assert [each.id for each in made(lease_id)] == [server.id]


def test_a_tag_that_a_stranger_copied_gives_him_nothing_and_costs_him_nothing(
    launches: Launches,
    owner: RequestContext,
    connect: Callable[[str], Connection],
    made: Callable,
):
    """Tags are their owners' to write. A server of another project is not the lease's, whatever it says."""
    stranger = connect(settings.TENANTS[1])
    lease_id = launches.claim(owner)
    forged = stranger.compute.create_server(
        name="forged",
        image_id=launches.least["imageRef"],
        flavor_id=launches.least["flavorRef"],
        networks=[{"uuid": stranger.network.find_network(settings.NETWORK).id}],
        tags=[server_tags.tag(lease_id)],
    )
    try:
        stranger.compute.wait_for_server(forged, interval=2, wait=300)
        launches.reconciler.reconcile(lease_id)
        assert launches.lease(lease_id).status == Status.CLAIMED
        launches.release(lease_id)
        launches.drive(lease_id, Status.RELEASED)
        assert [server.id for server in made(lease_id)] == [forged.id]
    finally:
        stranger.compute.delete_server(forged)
        stranger.compute.wait_for_delete(forged, interval=2, wait=300)


def test_many_engines_that_are_woken_at_once_make_one_server(
    launches: Launches, owner: RequestContext, made: Callable
):
    lease_id = launches.claim(owner)
    engines = [launches.engine(f"engine {number}") for number in range(4)]
    for engine in engines:
        engine.callers.keep(lease_id, owner)
    together = threading.Barrier(len(engines), timeout=60)

    def reconcile(engine: Any) -> None:
        together.wait()
        engine.reconcile(lease_id)

    workers = [threading.Thread(target=reconcile, args=[engine]) for engine in engines]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    # One of them watches the server, and the others leave it to that one.
    launches.await_that(lambda: not any(engine.reconcile(lease_id) for engine in engines))
    assert launches.lease(lease_id).status == Status.ACTIVE
    assert len(made(lease_id)) == 1
