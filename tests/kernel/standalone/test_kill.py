# SPDX-License-Identifier: Apache-2.0
"""Kill the process at critical moments; the next process completes what was begun."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.kernel.standalone.cloud import HOSTS, Cloud
from tests.support.waiting import until

pytestmark = pytest.mark.kernel

CGPUS = {"count": 2, "mode": "shared", "memory_mb": 1024}
Moment = Callable[[Cloud], object]


def first_record(cloud: Cloud) -> object:
    return list((cloud.state_dir / "servers").glob("*.json"))


def first_vm(cloud: Cloud) -> object:
    return cloud.vms()


def first_tap(cloud: Cloud) -> object:
    return cloud.taps()


def first_mapping(cloud: Cloud) -> object:
    return cloud.mappings()


def fewer_mappings(cloud: Cloud) -> object:
    return len(cloud.mappings()) < 8


def fewer_vms(cloud: Cloud) -> object:
    return len(cloud.vms()) < 4


def fewer_records(cloud: Cloud) -> object:
    return len(list((cloud.state_dir / "servers").glob("*.json"))) < 4


@pytest.mark.parametrize("moment", [first_record, first_vm, first_tap, first_mapping])
def test_launches_that_a_kill_interrupted_become_active(cloud, moment: Moment):
    requested = [cloud.request_lease(**CGPUS) for _ in range(4)]
    until(lambda: moment(cloud))
    cloud.kill()
    cloud.start()
    active = [cloud.await_status(lease, "ACTIVE") for lease in requested]
    cloud.check_nothing_is_leaked(active)
    for lease in active:
        cloud.check_reach(lease)


@pytest.mark.parametrize("moment", [fewer_mappings, fewer_vms, fewer_records])
def test_releases_that_a_kill_interrupted_release_everything(cloud, moment: Moment):
    active = [cloud.launch(**CGPUS) for _ in range(4)]
    for lease in active:
        cloud.request_release(lease)
    until(lambda: moment(cloud))
    cloud.kill()
    cloud.start()
    for lease in active:
        cloud.await_status(lease, "RELEASED")
    cloud.check_nothing_is_leaked([])


def test_mappings_of_vms_survive_a_kill_and_work_after_the_next_start(cloud):
    """Everything survives but the daemons, which are part of the process here."""
    lease = cloud.launch(count=2)
    before = cloud.mappings()
    cloud.kill()
    assert cloud.mappings() == before
    cloud.start()
    assert cloud.mappings() == before
    cloud.check_reach(cloud.lease(lease))
    cloud.check_nothing_is_leaked([cloud.lease(lease)])


def test_a_compute_host_that_lost_its_rules_gets_them_back(cloud):
    """Like a reboot: the tables and veth pairs are gone when the agent starts."""
    leases = [cloud.launch(count=2), cloud.launch(count=2, locality="local")]
    cloud.kill()
    for host in HOSTS:
        inside = ["ip", "netns", "exec", cloud.prefix + host]
        subprocess.run([*inside, "nft", "flush", "ruleset"], check=True)
        subprocess.run([*inside, "ip", "link", "del", "rodvr0"], check=True)
    assert cloud.mappings() == []
    cloud.start()
    until(lambda: len(cloud.mappings()) == 4, "the mappings")
    for lease in leases:
        cloud.check_reach(lease)


def test_a_vm_deleted_while_nothing_runs_is_noticed_at_the_next_start(cloud):
    lease, other = cloud.launch(count=1), cloud.launch(count=1)
    cloud.kill()
    subprocess.run(["ip", "netns", "del", cloud.vm(lease)], check=True)
    cloud.start()
    cloud.await_status(lease, "RELEASED")
    cloud.check_nothing_is_leaked([other])
    cloud.check_reach(other)
