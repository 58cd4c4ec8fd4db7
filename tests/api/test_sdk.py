# SPDX-License-Identifier: Apache-2.0
"""openstacksdk with `gpu_scheduling`, against the API over HTTP."""

from __future__ import annotations

import itertools

import openstack
import pytest
from openstack import exceptions

from gsaas.api import microversions
from gsaas.db import models
from gsaasclient import sdk
from gsaasclient.sdk.base import NEWEST
from tests.api.openstack_user import user as user
from tests.api.openstack_user import write_clouds
from tests.api.test_repeated_launches import LosingProxy

SHARED = {"count": 1, "mode": "shared", "memory_mb": 64}


@pytest.fixture
def gpus(user):
    return user.connect().gpu_scheduling


@pytest.fixture
def admin(user):
    return user.connect("admin").gpu_scheduling


def alloc(gpus, **more):
    return gpus.create_lease(**{"cgpus": SHARED, "server": None} | more)


def test_clouds_yaml_alone_adds_the_service(user, tmp_path):
    hook = "gsaasclient.sdk:add_service"
    write_clouds(tmp_path / "clouds.yaml", user.keystone.url, vendor_hook=hook)
    connection = openstack.connect("member")
    assert connection.gpu_scheduling.get_totals().gpus == 8


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/"])
def test_the_catalogue_may_or_may_not_name_the_version(user, end):
    user.keystone.endpoints[0]["url"] = user.url + end
    gpus = user.connect().gpu_scheduling
    lease = alloc(gpus)
    assert [found.id for found in gpus.leases()] == [lease.id]


def test_the_endpoint_can_be_configured(user):
    user.keystone.endpoints.clear()
    connection = user.connect(gpu_scheduling_endpoint_override=f"{user.url}/v1")
    assert connection.gpu_scheduling.get_totals().hosts == 2


def test_who_waits_for_a_lease_that_is_active_already_knows_all_of_it(gpus):
    lease = alloc(gpus)
    assert (lease.status, lease.events) == ("ACTIVE", None)
    assert gpus.wait_for_lease(lease).events[0]["event"] == "claim"


def test_a_lease_from_its_launch_to_its_release(gpus):
    lease = gpus.create_lease(
        name="training",
        cgpus={"count": 2, "mode": "shared", "memory_mb": 2048},
        server={"imageRef": "debian", "flavorRef": "small"},
    )
    assert lease.notes == ["flavorRef: ignored by this cloud"]
    lease = gpus.wait_for_lease(lease, interval=0.01)
    assert (lease.name, lease.status, lease.cgpus["memory_mb"]) == ("training", "ACTIVE", 2048)
    assert [device["masked_address"] for device in lease.devices] == [
        "169.254.71.1:8308",
        "169.254.71.2:8308",
    ]
    assert lease.events[0]["event"] == "claim"
    assert gpus.get_lease_environment(lease)["RCUDA_DEVICE_COUNT"] == "2"
    gpus.delete_lease(lease)
    assert gpus.wait_for_release(lease, interval=0.01).status == "RELEASED"
    assert list(gpus.leases()) == []
    assert [one.id for one in gpus.leases(status="RELEASED")] == [lease.id]
    gpus.delete_lease(lease)  # a second time
    with pytest.raises(exceptions.NotFoundException):
        gpus.delete_lease(lease, ignore_missing=False)


def test_lists_are_read_page_by_page(gpus):
    made = [alloc(gpus, name=f"lease{number}").id for number in range(5)]
    assert [lease.id for lease in gpus.leases()] == made
    assert [lease.id for lease in gpus.leases(limit=1)] == made
    assert [lease.id for lease in gpus.leases(marker=made[2])] == made[3:]
    order = {"sort_key": ["mode", "name"], "sort_dir": ["asc", "desc"]}
    assert [lease.id for lease in gpus.leases(**order)] == made[::-1]


def test_a_page_is_read_when_it_is_needed(user, gpus):
    made = [alloc(gpus).id for _ in range(4)]
    user.requests.clear()
    assert [lease.id for lease in itertools.islice(gpus.leases(), 2)] == made[:2]
    assert len(user.requests) == 1


@pytest.mark.slow
def test_a_launch_whose_answer_is_lost_makes_one_lease(user):
    proxy = LosingProxy(user.url, 1)
    user.keystone.endpoints[0]["url"] = proxy.url
    lease = alloc(user.connect().gpu_scheduling)
    proxy.close()
    assert proxy.launches == 2
    with user.world.database.read() as session:
        (row,) = session.query(models.LeaseRow)
        assert row.id == lease.id


def test_a_launch_that_fails_says_why(user, gpus):
    user.world.engine.idle = True
    lease = gpus.create_lease(cgpus={"count": 1}, server={})
    user.world.engine.fail(lease.id, "boot", "the host went away")
    for seen in (lease, gpus.get_lease(lease.id)):
        with pytest.raises(exceptions.ResourceFailure, match="at boot: the host went away"):
            gpus.wait_for_lease(seen, interval=0.01)


def test_a_wait_ends_after_its_time(user, gpus):
    user.world.engine.idle = True
    lease = gpus.create_lease(cgpus={"count": 1}, server={})
    with pytest.raises(exceptions.ResourceTimeout):
        gpus.wait_for_lease(lease, wait=0.05, interval=0.01)


def test_an_error_has_the_sentence_of_the_api_and_its_facts(gpus):
    alloc(gpus, cgpus={"count": 6})
    with pytest.raises(
        exceptions.ConflictException, match="6 of 8 GPUs are held exclusively"
    ) as caught:
        alloc(gpus, cgpus={"count": 4})
    error = sdk.api_error(caught.value)
    assert error.code == "gsaas.capacity.busy"
    assert error.facts["nearest"]["count"] == 2
    assert error.request_id.startswith("req-")


def test_a_lease_is_found_by_id_server_and_name(user, gpus):
    lease = gpus.wait_for_lease(
        gpus.create_lease(name="one", cgpus=SHARED, server={}), interval=0.01
    )
    for name in ("one", lease.id, lease.server["id"], lease.id[:8], lease.server["id"][:9]):
        assert gpus.find_lease(name).id == lease.id
    for name in ("none", lease.id[:3], "..", "a/b?c=d", "00000000-0000-4000-8000-000000000000"):
        assert gpus.find_lease(name) is None
        with pytest.raises(exceptions.NotFoundException):
            gpus.find_lease(name, ignore_missing=False)
    alloc(gpus, name="one")
    with pytest.raises(exceptions.DuplicateResource, match=lease.id):
        gpus.find_lease("one")
    assert user.connect("stranger").gpu_scheduling.find_lease(lease.id) is None


def test_only_admins_list_the_leases_of_all_projects(gpus, admin):
    alloc(gpus)
    alloc(admin)
    assert len(list(admin.leases(all_projects=True))) == 2
    assert len(list(admin.leases(all_projects=False))) == 1
    with pytest.raises(exceptions.ForbiddenException, match="list-all-projects"):
        list(gpus.leases(all_projects=True))


def test_a_lease_is_changed(gpus):
    lease = alloc(gpus)
    assert gpus.update_lease(lease.id, name="new").name == "new"
    assert gpus.update_lease(lease, name="newer").name == "newer"
    assert gpus.get_lease(lease.id).name == "newer"


@pytest.mark.slow
def test_a_lease_is_kept_alive(gpus):
    lease = alloc(gpus, keepalive=60)
    assert gpus.keep_lease(lease) >= lease.kept_until
    assert gpus.keep_lease(alloc(gpus).id) is None


def test_the_queue_and_the_turns_in_it(gpus):
    alloc(gpus, cgpus={"count": 8})
    first = alloc(gpus, cgpus={"count": 1}, wait=600, name="first")
    alloc(gpus, cgpus={"count": 1}, wait=None, name="second")
    assert (first.status, first.queue["position"]) == ("QUEUED", 1)
    assert [(place.position, place.name) for place in gpus.queue()] == [(1, "first"), (2, "second")]
    gpus.update_lease(first, priority=-1)
    assert [place.name for place in gpus.queue()] == ["second", "first"]


def test_tenants_see_totals_and_admins_each_gpu_and_host(gpus, admin):
    assert (gpus.get_totals().gpus, gpus.get_totals().free_mb) == (8, 65536)
    assert list(gpus.gpus()) == list(gpus.hosts()) == []
    assert [gpu.id for gpu in admin.gpus()] == [
        f"GPU-000{host}-{index}" for host in (1, 2) for index in range(4)
    ]
    assert [host.name for host in admin.hosts()] == ["compute1", "gpu1", "gpu2"]
    assert admin.get_gpu("GPU-0002-3").host == "gpu2"
    with pytest.raises(exceptions.ForbiddenException):
        gpus.get_gpu("GPU-0002-3")


def test_an_admin_takes_gpus_and_hosts_out_of_service(admin):
    gpu = admin.disable_gpu("GPU-0002-3", "fan broken")
    assert (gpu.is_disabled, gpu.disabled_reason) == (True, "fan broken")
    assert not admin.enable_gpu(gpu).is_disabled
    host = admin.disable_host("gpu1")
    assert (host.is_disabled, host.disabled_reason) == (True, None)
    assert admin.get_host("gpu1").is_disabled
    assert not admin.enable_host(host).is_disabled


def test_the_name_of_a_host_may_have_any_character(user, admin):
    name = "rack 7, 50%?é"
    with user.world.database.write() as session:
        session.merge(models.HostRow(name=name))
    host = admin.get_host(name)
    assert host.name == name
    assert admin.disable_host(name).is_disabled
    assert not admin.enable_host(admin.get_host(name)).is_disabled
    assert admin.forget_host(admin.get_host(name))["name"] == name
    with pytest.raises(exceptions.NotFoundException):
        admin.get_host(name)


def test_a_host_that_is_alive_is_forgotten_by_force_only(admin):
    with pytest.raises(exceptions.ConflictException):
        admin.forget_host("compute1")
    assert admin.forget_host("compute1", force=True)["failed_leases"] == []


def test_a_gpu_moves_to_a_host_that_reports_it_only(admin):
    with pytest.raises(exceptions.ConflictException, match="does not report"):
        admin.adopt_gpu("GPU-0001-0", "gpu2")


def test_policies_are_listed_shown_and_set(gpus, admin):
    policies = {policy.name: policy for policy in gpus.policies()}
    assert policies["least-load-fit"].is_default
    assert gpus.get_policy("first-fit").about
    assert admin.set_default_policy("energy").is_default
    assert admin.set_default_policy(None).name == "least-load-fit"
    with pytest.raises(exceptions.NotFoundException):
        gpus.get_policy("none")


def test_a_check_says_what_would_fit(gpus):
    assert gpus.create_check(count=8).fits
    check = gpus.create_check(count=9)
    assert (check.fits, check.code) == (False, "gsaas.capacity.impossible")
    assert check.nearest["count"] == 8


def test_usage_and_limits(gpus):
    alloc(gpus)
    usage = gpus.get_usage(start="2020-01-01")
    assert [(used["project_id"], used["leases"]) for used in usage.projects] == [("member", 1)]
    assert gpus.get_limits().cgpus == {"limit": -1, "used": 1}


def test_requests_are_for_the_newest_microversion_that_both_sides_know(user, gpus, monkeypatch):
    gpus.get_totals()
    assert user.requests[-1][1] == f"gpu-scheduling {NEWEST}"
    monkeypatch.setattr(microversions, "HISTORY", ((1, 0), (1, 1)))
    monkeypatch.setattr(microversions, "NEWEST", "1.1")
    older = user.connect().gpu_scheduling
    assert list(older.leases(sort_key="name")) == []
    assert user.requests[-1][1] == "gpu-scheduling 1.1"
    older = user.connect(gpu_scheduling_default_microversion="1.0").gpu_scheduling
    assert list(older.leases()) == []
    assert user.requests[-1][1] == "gpu-scheduling 1.0"


def test_the_sdk_knows_the_newest_microversion():
    assert NEWEST == microversions.NEWEST


def test_an_administrator_reads_why_a_reservation_is_degraded(gpus, admin):
    made = gpus.create_reservation(cgpus={"count": 8}, end="2040-02-01")
    assert (made.is_degraded, made.degraded_reasons) == (False, None)
    [first, *_] = admin.gpus()
    admin.disable_gpu(first)
    assert gpus.get_reservation(made.id).is_degraded
    [reason] = admin.get_reservation(made.id).degraded_reasons
    assert first.id in reason


def test_all_pages_of_the_reservations_are_listed_in_the_order_that_is_asked_for(gpus):
    for name in ("b", "c", "a"):
        gpus.create_reservation(cgpus={"count": 1}, name=name, end="2040-02-01")
    assert [one.name for one in gpus.reservations(sort_key="name", limit=1)] == ["a", "b", "c"]


def test_a_reservation_from_its_creation_to_its_end(gpus, admin):
    made = gpus.create_reservation(
        cgpus=SHARED, start="2040-01-31", end="2040-02-01", name="course"
    )
    assert (made.name, made.status, made.cgpus["memory_mb"]) == ("course", "PENDING", 64)
    assert gpus.get_reservation(made.id).end == made.end
    assert [one.id for one in gpus.reservations()] == [made.id]
    assert [one.id for one in admin.reservations(all_projects=True)] == [made.id]
    assert gpus.update_reservation(made, name="lecture").name == "lecture"
    assert [one.name for one in gpus.reservations()] == ["lecture"]
    gpus.delete_reservation(made)
    assert list(gpus.reservations()) == []
    assert [one.id for one in gpus.reservations(status="CANCELLED")] == [made.id]
    with pytest.raises(exceptions.NotFoundException):
        gpus.get_reservation("no-such-reservation")
