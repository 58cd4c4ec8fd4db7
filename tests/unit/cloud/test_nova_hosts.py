# SPDX-License-Identifier: Apache-2.0
"""What a flavor requires of Placement, and the free memory of its providers."""

from __future__ import annotations

from gsaas.cloud.nova import hosts

SMALL = {"vcpus": 2, "ram": 512, "disk": 10, "swap": "", "OS-FLV-EXT-DATA:ephemeral": 0}


def test_a_flavor_requires_processors_memory_and_disk():
    assert hosts.placement_query(SMALL, volume_boot=False) == (
        {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 10},
        set(),
    )


def test_a_server_that_boots_from_a_volume_needs_no_disk_of_its_host():
    assert "DISK_GB" not in hosts.placement_query(SMALL, volume_boot=True)[0]


def test_swap_and_an_ephemeral_disk_count_as_disk():
    large = {**SMALL, "swap": 1500, "OS-FLV-EXT-DATA:ephemeral": 5}
    assert hosts.placement_query(large, volume_boot=False)[0]["DISK_GB"] == 17


def test_extra_specs_change_the_query_as_they_do_in_nova():
    specs = {
        "trait:CUSTOM_FAST": "required",
        "trait:CUSTOM_OLD": "forbidden",
        "resources:CUSTOM_FPGA": "1",
        "resources:DISK_GB": "0",
        "hw:cpu_policy": "dedicated",
        "hw:mem_page_size": "large",
    }
    query = hosts.placement_query({**SMALL, "extra_specs": specs}, volume_boot=False)
    assert query == (
        {"PCPU": 2, "MEMORY_MB": 512, "CUSTOM_FPGA": 1},
        {"CUSTOM_FAST", "!CUSTOM_OLD"},
    )


def test_free_memory_is_counted_for_the_root_of_each_tree_of_providers():
    summaries = [
        {"root_provider_uuid": "a", "resources": {"VCPU": {"capacity": 4, "used": 0}}},
        {"root_provider_uuid": "a", "resources": {"MEMORY_MB": {"capacity": 900, "used": 400}}},
        {"root_provider_uuid": "b", "resources": {"MEMORY_MB": {"capacity": 800, "used": 0}}},
    ]
    assert hosts.free_memory(summaries) == {"a": 500, "b": 800}
