# SPDX-License-Identifier: Apache-2.0
"""Leases without a VM on a whole cloud: which consumers reach the GPUs, how, and for how long."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gsaas.netlink.namespace import entered
from gsaasclient import grant_client
from tests.kernel.standalone.cloud import KEEP_CONNECTION, READ_GREETING
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.kernel

USER = 1234


def alloc(cloud, **consumer):
    lease = {"cgpus": {"count": 1}, "server": None, "consumer": consumer}
    status, body = cloud.call("POST", "/v1/leases", {"lease": lease})
    assert status in (201, 202), body
    return body


def python(cloud, host, script, address, uid=0):
    place, port = address.split(":")
    enter = ["ip", "netns", "exec", cloud.prefix + host]
    become = ["setpriv", f"--reuid={uid}", "--clear-groups"]
    return [*enter, *become, sys.executable, "-I", "-c", script, place, port]


def greeting(cloud, host, address, uid=0):
    """Connect to *address* as a program of *host*; return the daemon's greeting, or the error."""
    command = python(cloud, host, READ_GREETING, address, uid)
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def show_grant(cloud, host, environment):
    with entered(cloud.prefix + host):
        grant_client.present(
            environment["GSAAS_GATE"], environment["GSAAS_LEASE"], environment["GSAAS_GRANT"]
        )


def test_programs_of_a_compute_host_reach_their_gpu_by_a_masked_address(cloud):
    lease = alloc(cloud, host="compute1", uid=USER)["lease"]
    lease = cloud.await_status(lease, "ACTIVE")
    (device,) = lease["devices"]

    answer = greeting(cloud, "compute1", device["masked_address"], USER)

    assert answer["gpu"] == device["gpu_uuid"]
    assert (
        greeting(cloud, "compute1", device["masked_address"])["error"] == "ConnectionRefusedError"
    )
    cloud.terminate(lease)
    gone = greeting(cloud, "compute1", device["masked_address"], USER)
    assert gone["error"] == "ConnectionRefusedError"


def test_a_real_address_refuses_consumers_that_have_not_redeemed_a_grant(cloud):
    answer = alloc(cloud)
    lease, environment = answer["lease"], answer["environment"]
    (device,) = lease["devices"]
    assert greeting(cloud, "compute1", device["real_address"])["error"] == "ConnectionRefusedError"

    show_grant(cloud, "compute1", environment)

    assert greeting(cloud, "compute1", device["real_address"])["gpu"] == device["gpu_uuid"]
    assert greeting(cloud, "gpu2", device["real_address"]).get("gpu") is None


def test_a_redeemed_grant_does_not_admit_another_address(cloud):
    answer = alloc(cloud)
    (device,) = answer["lease"]["devices"]
    show_grant(cloud, "compute1", answer["environment"])
    other = next(host for host in ("gpu1", "gpu2") if host != device["gpu_host"])

    with pytest.raises(grant_client.NotAdmitted) as refusal:
        show_grant(cloud, other, answer["environment"])

    assert refusal.value.code == "gsaas.grant.stolen"
    assert "error" in greeting(cloud, other, device["real_address"])
    _, body = cloud.call("GET", f"/v1/leases/{answer['lease']['id']}")
    events = [event["event"] for event in body["lease"]["events"]]
    assert events[-2:] == ["redeem-grant", "refuse-grant"]


def test_the_end_of_a_lease_cuts_the_connections_that_its_grant_admitted(cloud):
    answer = alloc(cloud)
    (device,) = answer["lease"]["devices"]
    show_grant(cloud, "compute1", answer["environment"])
    command = python(cloud, "compute1", KEEP_CONNECTION, device["real_address"])
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert program.stdout.readline() == "connected\n"

    cloud.terminate(answer["lease"])

    assert program.communicate(timeout=PATIENCE)[0].strip() in ("closed", "ConnectionResetError")
    until(
        lambda: "error" in greeting(cloud, "compute1", device["real_address"]),
        "the fence to be closed",
    )
