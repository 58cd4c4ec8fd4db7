# SPDX-License-Identifier: Apache-2.0
"""Reading what the kernel says about processes, as text."""

from __future__ import annotations

from gsaas.gpu_host.daemons.enclosure import NvidiaDevice, devices, nodes
from gsaas.gpu_host.daemons.processes import cgroup_parents, has_listener

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "31 30 0:27 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n"
    "34 30 0:30 / /sys/fs/cgroup/freezer rw shared:10 - cgroup cgroup rw,freezer\n"
    "35 30 0:31 / /sys/fs/cgroup/pids rw shared:11 - cgroup cgroup rw,pids\n"
)


def test_below_systemd_daemons_go_below_the_monitors_own_unit():
    own = "0::/system.slice/gsaas-monitor.service\n"
    assert cgroup_parents(V2, own) == ["/sys/fs/cgroup/system.slice/gsaas-monitor.service"]


def test_version_2_goes_before_version_1_and_pids_before_freezer():
    own = "8:pids:/\n6:freezer:/jail\n0::/\n"
    assert cgroup_parents(HYBRID, own) == [
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup/pids",
        "/sys/fs/cgroup/freezer/jail",
    ]


def test_in_a_container_paths_begin_where_its_mount_does():
    mounts = "30 23 0:26 /docker/c1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
    assert cgroup_parents(mounts, "0::/docker/c1/monitor\n") == ["/sys/fs/cgroup/monitor"]
    assert cgroup_parents(mounts, "0::/elsewhere\n") == []


def test_no_hierarchy_no_folder():
    assert cgroup_parents("", "0::/\n") == []


def test_listeners_are_told_from_connections():
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue\n"
        "   0: 0100007F:4E20 00000000:0000 0A 00000000:00000000\n"
        "   1: 0100007F:4E21 0100007F:9999 01 00000000:00000000\n"
    )
    assert [has_listener(table, port) for port in (20000, 20001, 20002)] == [True, False, False]


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


def test_a_gpus_device_node_is_its_minor_number_not_nvmls_index():
    found = devices({"0000:3b:00.0": INFORMATION, "0000:5e:00.0": "Model: broken\n"})
    device = NvidiaDevice("nvidia3", "0000:3b:00.0")
    assert found == {"GPU-9f1c7e1a-0000-4c42-8d77-000000000003": device}
    visible = nodes(device, is_mig=False, more=["infiniband"])
    assert [name for name in visible if name.startswith("nvidia")] == [
        *("nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidia3", "nvidiactl")
    ]
    assert "infiniband" in visible
    assert "nvidia-caps" in nodes(device, is_mig=True)
