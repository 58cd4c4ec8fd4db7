# SPDX-License-Identifier: Apache-2.0
"""Taps as hypervisors make them, with and without a virtio-net header."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import G1, A, Lab, binding, eventually

pytestmark = pytest.mark.kernel

TAP, IP, MAC = "tap44444444-44", "10.0.0.7", "fa:16:3e:00:00:07"


@pytest.fixture(params=["vnet", "plain"])
def real_tap(lab: Lab, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """VM 3 gets a second card, which is a real tap on the host."""
    relay = Path(__file__).with_name("tap_relay.py")
    arguments = [lab.compute, TAP, lab.name("vm3"), MAC, request.param]
    process = subprocess.Popen(
        [sys.executable, str(relay), *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    lab.ip("cmp", f"link set {TAP} master br-a")
    lab.ip("vm3", f"addr add {IP}/24 dev eth1; route del 169.254.71.0/24 dev eth0")
    lab.ip("vm3", f"route add 169.254.71.0/24 dev eth1 src {IP}")
    yield process
    process.terminate()
    process.communicate()
    lab.ip("vm3", "route replace 169.254.71.0/24 dev eth0 scope link")


def test_data_stays_intact_through_a_real_tap(
    lab: Lab, endpoint: Endpoint, real_tap: subprocess.Popen[str]
) -> None:
    wanted = binding("vm3", {A: G1}, port_id="port-real", tap=TAP, ip=IP, mac=MAC)
    assert endpoint.apply(wanted).bindings["port-real"].installed
    assert lab.transfer("vm3", A, 8) == "intact"


def test_a_vanished_real_tap_takes_its_rules_along(
    lab: Lab, endpoint: Endpoint, real_tap: subprocess.Popen[str]
) -> None:
    endpoint.apply(binding("vm3", {A: G1}, port_id="port-real", tap=TAP, ip=IP, mac=MAC))
    real_tap.terminate()
    real_tap.wait()
    eventually(lambda: not endpoint.report().bindings["port-real"].installed)
    assert TAP not in str(lab.ruleset())
