# SPDX-License-Identifier: Apache-2.0
"""The line that logs in to a VM names its best address, and the user if its image tells."""

from __future__ import annotations

from typing import Any

import pytest

from gsaasclient import vms

FIXED = {"addr": "10.0.0.5", "version": 4, "OS-EXT-IPS:type": "fixed"}
FLOATING = {"addr": "203.0.113.9", "version": 4, "OS-EXT-IPS:type": "floating"}


def ssh(*addresses: dict[str, Any], **properties: str) -> tuple[str, str] | None:
    return vms.ssh(vms.describe({"private": addresses} if addresses else {}, properties))


def test_a_floating_address_is_reached_from_everywhere():
    assert ssh(FIXED, FLOATING, os_distro="debian") == ("ssh debian@203.0.113.9", "log in to it")


def test_a_fixed_address_is_reached_from_its_network():
    command, about = ssh(FIXED, os_distro="Ubuntu")
    assert command == "ssh ubuntu@10.0.0.5"
    assert about == "log in to it, from where its network can be reached"


def test_the_user_that_the_image_names_comes_before_that_of_its_distribution():
    assert ssh(FIXED, os_admin_user="core", os_distro="fedora")[0] == "ssh core@10.0.0.5"


@pytest.mark.parametrize("properties", [{}, {"os_distro": "plan9"}])
def test_without_a_user_the_hint_says_that_the_image_does_not_name_it(properties: dict[str, str]):
    command, about = ssh(FIXED, **properties)
    assert command == "ssh 10.0.0.5"
    assert about.endswith("its image does not say as which user")


def test_a_vm_without_an_address_has_no_hint():
    assert ssh() is None
