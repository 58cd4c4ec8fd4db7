# SPDX-License-Identifier: Apache-2.0
"""Neutron's rules are taken out of the firewall, and everybody else's stay as they are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.openstack.bed.errors import BedError
from tests.openstack.bed.remains import remove_link, without_neutron

pytestmark = pytest.mark.kernel

OTHERS = """\
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:others - [0:0]
-A FORWARD -s 192.0.2.0/24 -m comment --comment "not of neutron-openvswi-FORWARD" -j others
-A others -j ACCEPT
COMMIT
"""

# In the order and the forms that Neutron's agents write.
NEUTRON = """\
*filter
:neutron-filter-top - [0:0]
:neutron-openvswi-FORWARD - [0:0]
:neutron-openvswi-local - [0:0]
:neutron-openvswi-sg-chain - [0:0]
-I FORWARD -j neutron-openvswi-FORWARD
-I FORWARD -j neutron-filter-top
-A neutron-filter-top -j neutron-openvswi-local
-A neutron-openvswi-FORWARD -m physdev --physdev-out tap0 --physdev-is-bridged -j neutron-openvswi-sg-chain
-A neutron-openvswi-sg-chain -j ACCEPT
COMMIT
*raw
:neutron-openvswi-PREROUTING - [0:0]
-A PREROUTING -j neutron-openvswi-PREROUTING
COMMIT
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    name = f"remains-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    yield name
    subprocess.run(["ip", "netns", "delete", name], check=True)


def test_only_neutrons_rules_go(namespace: str):
    _restore(namespace, OTHERS)
    before = _rules(namespace)
    _restore(namespace, NEUTRON)
    assert _rules(namespace) != before
    _restore(namespace, "\n".join(without_neutron(_save(namespace))) + "\n")
    assert _rules(namespace) == before


def test_nothing_is_done_where_neutron_was_not(namespace: str):
    _restore(namespace, OTHERS)
    assert without_neutron(_save(namespace)) == []


def test_a_link_that_went_by_itself_is_no_error_and_one_that_stays_is():
    remove_link(f"gone{os.getpid()}")
    with pytest.raises(BedError, match="lo"):
        remove_link("lo")


def _save(namespace: str) -> list[str]:
    command = ["ip", "netns", "exec", namespace, "iptables-save"]
    saved = subprocess.run(command, check=True, capture_output=True, text=True)
    return saved.stdout.splitlines()


def _rules(namespace: str) -> list[str]:
    """The chains that somebody made, and all rules, without their counters."""
    saved = _save(namespace)
    chains = [line.split()[0] for line in saved if line.startswith(":") and " - " in line]
    return chains + [line for line in saved if line.startswith("-A")]


def _restore(namespace: str, rules: str) -> None:
    command = ["ip", "netns", "exec", namespace, "iptables-restore", "--noflush"]
    subprocess.run(command, check=True, input=rules, text=True)
