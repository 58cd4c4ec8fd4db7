# SPDX-License-Identifier: Apache-2.0
"""The inventory file: what it says, and what it may not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsaas.gpu_host import inventory
from gsaas.gpu_host.inventory import HostSpec, Inventory, InventoryError

PORTS = range(8308, 65536)
SAMPLE = Path(__file__).parents[3] / "etc" / "gsaas" / "inventory.toml"
NETWORK = 'gpu_network = "192.168.50.0/24"\n'


def host(**fields: object) -> str:
    """One host as TOML."""
    whole = {"name": "a", "gpu_address": "192.168.50.1", **fields}
    lines = [
        f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
        for key, value in whole.items()
    ]
    return "\n".join(["[[hosts]]", *lines, ""])


def test_the_sample_says_what_happens_without_a_file():
    assert inventory.load(str(SAMPLE)) == inventory.load(None)


def test_a_host_needs_a_name_and_an_address_and_is_a_compute_host_without_gpus():
    expected = Inventory("192.168.50.0/24", (HostSpec("a", "192.168.50.1", True),))
    assert inventory.parse(NETWORK + host()) == expected
    assert expected.gpu_hosts == ()
    assert [spec.name for spec in expected.compute_hosts] == ["a"]


@pytest.mark.parametrize("name", ["gpu1", "GPU1.Rack-4.example.org", "10.0.0.7", "a_b", "a" * 200])
def test_a_host_has_any_name_that_nova_may_know_it_by(name):
    assert inventory.parse(NETWORK + host(name=name)).hosts[0].name == name


def test_gpus_have_uuids_that_stay_and_differ_and_ports_of_their_own():
    first = HostSpec("a", "192.168.50.1", gpus=3).gpu_infos(PORTS)
    again = HostSpec("a", "192.168.50.1", gpus=3).gpu_infos(PORTS)
    other = HostSpec("b", "192.168.50.2", gpus=3).gpu_infos(PORTS)
    assert first == again
    assert len({gpu.uuid for gpu in [*first, *other]}) == 6
    assert all(gpu.uuid.startswith("GPU-") for gpu in first)
    assert [gpu.daemon_port for gpu in first] == [8308, 8309, 8310]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gpu_network =", "not TOML"),
        ("", "gpu_network"),
        (NETWORK, "no hosts"),
        ("hosts = 3", "[[hosts]]"),
        ('gpu_network = "192.168.50.1/24"\n' + host(), "host bits"),
        (NETWORK + "[[hosts]]\nname = 'a'", "gpu_address"),
        (NETWORK + host(colour="green"), "colour"),
        (NETWORK + host(name="A b"), "is not a host name"),
        (NETWORK + host(name=".a"), "is not a host name"),
        (NETWORK + host(name="../a"), "is not a host name"),
        (NETWORK + host(name="a" * 201), "is not a host name"),
        (NETWORK + host(name=7), "is not a host name"),
        (NETWORK + host(name="switch"), "is reserved"),
        (NETWORK + host(name="vm-1"), "is reserved"),
        (NETWORK + host(gpu_address="somewhere"), "gpu_address"),
        (NETWORK + host(gpu_address="10.0.0.1"), "is not in 192.168.50.0/24"),
        (NETWORK + host(compute="yes"), "compute has to be true or false"),
        (NETWORK + host(gpus=-1), "gpus has to be a whole number from 0"),
        (NETWORK + host(gpus=True), "gpus has to be a whole number from 0"),
        (NETWORK + host(memory_mb=0), "memory_mb has to be a whole number from 1"),
        (NETWORK + host(model=""), "model has to be a text"),
        (NETWORK + host(compute_capability="8"), "compute_capability has to be a text such as"),
        (NETWORK + host(compute_capability=8.0), "compute_capability has to be a text such as"),
        (NETWORK + host() + host(gpu_address="192.168.50.2"), "two hosts have the name a"),
        (NETWORK + host() + host(name="b"), "two hosts have the gpu_address 192.168.50.1"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(text, problem):
    with pytest.raises(InventoryError) as refusal:
        inventory.parse(text)
    assert problem in str(refusal.value)


def test_a_file_that_is_not_there_is_refused_by_its_name(tmp_path):
    with pytest.raises(InventoryError, match=r"nowhere\.toml"):
        inventory.load(str(tmp_path / "nowhere.toml"))
