# SPDX-License-Identifier: Apache-2.0
"""gsaas-standalone with the daemons of a middleware that is not simulated: processes in its namespaces, no systemd."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gsaas.gpu_host.daemons import process_runner, unit
from tests.kernel.standalone.cloud import HOSTS, Cloud
from tests.support.waiting import until

pytestmark = pytest.mark.kernel

FAKE = Path(__file__).parents[2] / "support/fake_daemon.py"
CONFIGURATION = """\
[remoting]
driver = rcuda
[daemons]
life = per-lease
lease_ports = 20000-20999
folder = /
command = {python} -ES {fake} {{port}} {gpus} {behaviours}
health = listens
memory_limit = none
first_pause = 0.1
tmp_mb = 8
"""


@pytest.fixture
def begin(make_cloud):
    """A function that starts a cloud whose daemons have these behaviours of the fake daemon."""

    def begin(*behaviours: str) -> Cloud:
        cloud = make_cloud()
        words = {"python": sys.executable, "fake": FAKE, "behaviours": " ".join(behaviours)}
        words["gpus"] = "{gpu_uuid}"
        with cloud.config.open("a", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(**words))
        cloud.start()
        return cloud

    return begin


def first_processes(cloud: Cloud) -> dict[str, int]:
    """Return the pid of the first process of each daemon, by the key of the daemon."""
    found = process_runner.find([cloud.prefix + host for host in HOSTS])
    return {unit.parse(description)[0].key: pid for pid, description in found}


def all_processes(cloud: Cloud) -> set[int]:
    """Return all processes in the network namespaces of hosts, as the kernel has them."""
    inodes = {os.stat(f"/run/netns/{cloud.prefix}{host}").st_ino for host in HOSTS}  # noqa: PTH116
    found = set()
    for pid in (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()):
        try:
            if os.stat(f"/proc/{pid}/ns/net").st_ino in inodes:  # noqa: PTH116
                found.add(pid)
        except (FileNotFoundError, PermissionError):
            continue
    return found


def gpus(cloud: Cloud, lease: dict[str, Any]) -> list[str]:
    """Return which GPU answers at each masked address, from inside the VM."""
    return [
        cloud.greeting(lease, device["masked_address"]).get("gpu") for device in lease["devices"]
    ]


def claimed(lease: dict[str, Any]) -> list[str]:
    return [device["gpu_uuid"] for device in lease["devices"]]


def test_daemons_run_in_the_namespaces_of_their_hosts_and_outlive_a_kill_of_the_service(begin):
    cloud = begin("fork")
    lease = cloud.launch(count=2, mode="shared", memory_mb=512, hosts="spread")
    assert gpus(cloud, lease) == claimed(lease)
    before = first_processes(cloud)
    assert len(before) == 2
    cloud.kill()
    assert gpus(cloud, lease) == claimed(lease), "they answer while nobody looks after them"
    cloud.start()
    assert first_processes(cloud) == before, "the next one takes them over"
    cloud.terminate(lease)
    assert first_processes(cloud) == {}
    until(lambda: not all_processes(cloud), "every process of the daemons to end")
    until(
        lambda: not list((cloud.state_dir / "daemons").glob("*/*")), "their folders to be removed"
    )


def test_a_daemon_that_was_killed_is_started_again_at_its_address_and_its_neighbour_is_left_alone(
    begin,
):
    cloud = begin()
    lease = cloud.launch(count=2, mode="shared", memory_mb=512)
    before = first_processes(cloud)
    killed = f"{lease['id']}-0"
    os.kill(before[killed], signal.SIGKILL)
    until(
        lambda: first_processes(cloud).get(killed, before[killed]) != before[killed],
        "the daemon to be started again",
    )
    until(lambda: gpus(cloud, lease) == claimed(lease), "both to answer")
    after = first_processes(cloud)
    assert after[f"{lease['id']}-1"] == before[f"{lease['id']}-1"]


def test_a_daemon_found_dead_by_the_next_service_is_started_again(begin):
    cloud = begin()
    lease = cloud.launch(count=1, mode="shared", memory_mb=512)
    (pid,) = first_processes(cloud).values()
    cloud.kill()
    os.kill(pid, signal.SIGKILL)
    cloud.start()
    until(lambda: gpus(cloud, lease) == claimed(lease), "it to answer at its address")


def test_a_launch_says_what_a_daemon_that_cannot_run_has_printed(begin):
    cloud = begin("fail")
    lease = cloud.request_lease(count=1, mode="shared", memory_mb=512)
    until(lambda: cloud.lease(lease)["status"] == "ERROR", "the launch to fail")
    fault = json.dumps(cloud.lease(lease)["fault"])
    assert "ended with status 3: no licence found" in fault


def test_what_a_daemon_leaves_in_its_temporary_folder_is_bounded_and_goes_with_it(begin):
    cloud = begin()
    cloud.launch(count=1, mode="shared", memory_mb=512)
    (pid,) = first_processes(cloud).values()
    inner = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
    folder = dict(
        entry.split("=", 1)
        for entry in Path(f"/proc/{inner}/environ").read_text().split("\0")
        if "=" in entry
    )["TMPDIR"]
    fill = "head -c 16M /dev/zero > $TMPDIR/full; stat -c %s $TMPDIR/full"
    done = subprocess.run(
        ["nsenter", f"--target={inner}", "--mount", "sh", "-c", fill],
        env={**os.environ, "TMPDIR": folder},
        capture_output=True,
        text=True,
    )
    assert "No space left on device" in done.stderr
    assert int(done.stdout) <= 8 << 20
    assert list(Path(folder).iterdir()) == [], "outside, there is nothing"


def test_clean_ends_them(begin):
    cloud = begin()
    cloud.launch(count=1)
    assert len(first_processes(cloud)) == 1
    assert "stop it first" in cloud.run("--clean").stderr
    cloud.stop()
    assert len(first_processes(cloud)) == 1
    done = cloud.run("--clean")
    assert (done.returncode, done.stderr) == (0, "")
    assert first_processes(cloud) == {}
    assert not cloud.state_dir.exists()


@pytest.fixture
def lupine(make_cloud) -> Cloud:
    """A cloud with LUPINE as its middleware, and daemons that name the GPUs that CUDA would show them."""
    cloud = make_cloud()
    settings = CONFIGURATION.format(
        python=sys.executable, fake=FAKE, behaviours="", gpus="{gpu_uuids}"
    )
    with cloud.config.open("a", encoding="utf-8") as file:
        file.write(settings.replace("driver = rcuda", "driver = lupine"))
    cloud.start()
    return cloud


def test_two_cgpus_by_lupine_are_one_daemon_that_shows_both_gpus(lupine):
    lease = lupine.launch(count=2, mode="shared", memory_mb=512)
    (pid,) = first_processes(lupine).values()
    shown = ",".join(claimed(lease))
    assert len(set(claimed(lease))) == 2
    assert gpus(lupine, lease) == [shown] * 2, "both addresses lead to the daemon"
    _, answer = lupine.call("GET", f"/v1/leases/{lease['id']}/environment")
    first = lease["devices"][0]["masked_address"]
    assert answer["environment"]["LUPINE_SERVER"] == first, "named once, it shows each once"
    lupine.kill()
    lupine.start()
    assert list(first_processes(lupine).values()) == [pid], "the next service takes it over"
    os.kill(pid, signal.SIGKILL)
    until(lambda: gpus(lupine, lease) == [shown] * 2, "it to be started again, for both")
    neighbour = lupine.launch(count=2, mode="shared", memory_mb=512)
    assert len(first_processes(lupine)) == 2
    lupine.terminate(lease)
    assert list(first_processes(lupine)) == [f"{neighbour['id']}-0"]
    assert gpus(lupine, neighbour) == [",".join(claimed(neighbour))] * 2


def test_what_no_host_can_serve_by_one_daemon_is_refused_with_both_remedies(lupine):
    _, body = lupine.call("GET", "/v1/gpus")
    hosts = {gpu["host"] for gpu in body["gpus"]}
    for host in hosts:
        there = sum(gpu["host"] == host for gpu in body["gpus"])
        for _ in range(there - 1):
            lupine.launch(count=1, host=host)
    wanted = {"count": 2, "mode": "shared", "memory_mb": 512}
    status, refusal = lupine.call("POST", "/v1/leases", {"lease": {"cgpus": wanted}})
    assert status == 409
    (error,) = refusal["errors"]
    assert "the largest request that would fit now is 1 cGPU of 512 MiB" in error["detail"]
    assert "2 cGPUs of 512 MiB would fit now with several daemons" in error["detail"]
    assert "[remoting]several_daemons" in error["detail"]
    lupine.launch(count=1, mode="shared", memory_mb=512)
