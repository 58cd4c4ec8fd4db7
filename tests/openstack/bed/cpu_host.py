# SPDX-License-Identifier: Apache-2.0
"""A host without GPUs, whose processors and memory are devices: what uses its cGPUs computes.

An operator has installed gsaas-monitor on it as it ships, so its daemons are units of systemd. They are ggml's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.openstack.bed import machines
from tests.openstack.bed.booted import Machine
from tests.openstack.bed.work import Unit
from tests.support import ggml, shipped_monitor
from tests.support.shipped_monitor import REPOSITORY, SOURCE

DRIVER = "ggml"
DEVICES = 2
MEMORY = 1024
"""MiB of each device."""
SETTINGS = "/etc/gsaas/gsaas-monitor.conf"
LIBRARIES = f"{SOURCE}/{(ggml.FOLDER / 'ggml/lib').relative_to(REPOSITORY)}"
SERVER = f"/usr/bin/python3 -B {SOURCE}/gsaas/gpu_host/servers/ggml.py --libraries {LIBRARIES} --threads 1"

MACHINE = Machine(
    machines.CPU_HOST,
    namespace=machines.namespace(machines.CPU_HOST),
    binds={REPOSITORY: SOURCE},
)


def units() -> list[Unit]:
    return [
        Unit(
            "CPU host",
            needs=("machines",),
            prepare=MACHINE.prepare,
            daemons=(MACHINE.daemon,),
            finish=install,
        )
    ]


def install() -> None:
    """Install the monitor, unless that was done."""
    MACHINE.type(f"[ ! -e /opt/gsaas ] || exit 0\n{shipped_monitor.INSTALL}")


def configuration() -> dict[str, dict[str, Any]]:
    """What its monitor is told beside what all are."""
    return {
        "DEFAULT": {"host": machines.CPU_HOST},
        "monitor": {
            "source": "cpu",
            "gpu_address": machines.gpu_address(machines.CPU_HOST),
            "cpu_devices": DEVICES,
            "cpu_device_memory_mb": MEMORY,
        },
        "daemons": {"command": f"{SERVER} --host {{address}} --port {{port}}", "folder": "/opt"},
    }


def start(settings: Path) -> None:
    """Have its monitor run with this configuration."""
    MACHINE.write(SETTINGS, settings.read_text(), mode=0o640)
    MACHINE.type(f"chgrp gsaas-monitor {SETTINGS}; systemctl restart gsaas-monitor")


def remove() -> None:
    """Pull its plug, and forget what it wrote."""
    MACHINE.remove()
