# SPDX-License-Identifier: Apache-2.0
"""The inventories of etc/gsaas are read correctly, and a wrong one is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsaas.gpu_host import inventory
from gsaas.gpu_host.inventory import InventoryError
from gsaas.objects.gpu_report import GpuInfo

PORTS = range(8308, 65536)
ETC = Path(__file__).parents[3] / "etc/gsaas"
HOST = 'gpu_network = "192.0.2.0/24"\n[[hosts]]\nname = "gpu01"\ngpu_address = "192.0.2.11"\n'


def test_the_sample_of_a_simulated_cloud_equals_the_default():
    assert inventory.load(str(ETC / "inventory.toml")) == inventory.DEFAULT


def test_the_sample_of_gpu_hosts_gives_each_gpu_its_uuid_and_its_daemon_a_port():
    host = inventory.load(str(ETC / "gpu-host.toml")).host("gpu01")
    facts = {"model": "NVIDIA A100-PCIE-40GB", "memory_mb": 40960, "compute_capability": "8.0"}
    assert host.gpu_infos(PORTS) == [
        GpuInfo("GPU-7c1e3f0a-9d52-4d1b-8a7e-0d4f2b9e6a10", 0, daemon_port=8308, **facts),
        GpuInfo("GPU-2b8d6c44-51fe-4c3a-9e0b-7f6a1c5d8e21", 1, daemon_port=8309, **facts),
    ]


def test_uuids_that_are_not_declared_are_generated_and_stay_the_same():
    (first, second) = inventory.parse(HOST + "gpus = 2\n").host("gpu01").gpu_infos(PORTS)
    assert first.uuid != second.uuid
    (again, _) = inventory.parse(HOST + "gpus = 2\n").host("gpu01").gpu_infos(PORTS)
    assert again == first


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ('gpus = 2\nuuids = ["GPU-a"]', "gpu01: 1 uuids for 2 GPUs"),
        ('gpus = 1\nuuids = ["Quadro"]', "gpu01: 'Quadro' is not the UUID of a GPU"),
        ("gpus = 1\nuuids = [7]", "gpu01: 7 is not the UUID of a GPU"),
        ('gpus = 2\nuuids = ["GPU-a", "GPU-a"]', "two hosts have the GPU GPU-a"),
    ],
)
def test_invalid_uuids_are_refused(more: str, complaint: str):
    with pytest.raises(InventoryError) as refusal:
        inventory.parse(HOST + more)
    assert str(refusal.value) == complaint


def test_a_monitor_whose_host_is_not_declared_names_the_declared_ones():
    declared = inventory.parse(HOST + "gpus = 1\n")
    with pytest.raises(InventoryError) as refusal:
        declared.host("gpu02")
    assert str(refusal.value) == "no GPU host gpu02 is declared; those that are: gpu01"
