# SPDX-License-Identifier: Apache-2.0
"""Which device nodes a daemon gets, from what the NVIDIA driver says."""

from __future__ import annotations

import pytest

from gsaas.gpu_host.daemons.devices import NvidiaDevice, devices, own, read_devices

INFORMATION = """\
Model: 		 NVIDIA H100 80GB HBM3
IRQ:   		 65
GPU UUID: 	 GPU-9f1c7e1a-0000-4c42-8d77-000000000003
Video BIOS: 	 96.00.30.00.01
Bus Type: 	 PCIe
Bus Location: 	 0000:3b:00.0
Device Minor: 	 3
GPU Excluded:	 No
"""


THREE = {f"GPU-{n}": NvidiaDevice(f"nvidia{2 - n}", f"0000:{n}b:00.0") for n in range(3)}


def test_a_gpus_device_node_is_its_minor_number_not_nvmls_index():
    found = devices({"0000:3b:00.0": INFORMATION, "0000:5e:00.0": "Model: broken\n"})
    device = NvidiaDevice("nvidia3", "0000:3b:00.0")
    assert found == {"GPU-9f1c7e1a-0000-4c42-8d77-000000000003": device}


def test_without_a_driver_no_gpu_is_known(tmp_path):
    assert read_devices(tmp_path) == {}
    (tmp_path / "gpus/0000:3b:00.0").mkdir(parents=True)
    (tmp_path / "gpus/0000:3b:00.0/information").write_text(INFORMATION)
    assert list(read_devices(tmp_path)) == ["GPU-9f1c7e1a-0000-4c42-8d77-000000000003"]


def test_a_daemon_gets_its_own_node_and_the_control_nodes_and_no_other_gpus():
    found = own(["GPU-0"], THREE, is_mig=False, more=["infiniband"])
    assert found.nodes == (
        *("/dev/infiniband", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"),
        *("/dev/nvidia2", "/dev/nvidiactl"),
    )
    assert found.hidden == (
        "/proc/driver/nvidia/gpus/0000:1b:00.0",
        "/proc/driver/nvidia/gpus/0000:2b:00.0",
    )
    assert found.groups == ()


def test_a_daemon_of_two_gpus_gets_the_nodes_of_both():
    found = own(["GPU-0", "GPU-2"], THREE, is_mig=False)
    assert {"/dev/nvidia0", "/dev/nvidia2"} < set(found.nodes)
    assert "/dev/nvidia1" not in found.nodes
    assert found.hidden == ("/proc/driver/nvidia/gpus/0000:1b:00.0",)


def test_a_daemon_on_a_mig_instance_gets_the_capabilities_too():
    found = own(["GPU-0"], THREE, is_mig=True)
    assert "/dev/nvidia-caps" in found.nodes
    assert found.groups == ("char-nvidia-caps",)


def test_a_gpu_that_the_driver_does_not_list_has_no_devices():
    with pytest.raises(KeyError):
        own(["GPU-7"], THREE, is_mig=False)
