# SPDX-License-Identifier: Apache-2.0
"""Which device nodes a daemon needs.

CUDA obeys `CUDA_VISIBLE_DEVICES` and NVML does not, so a daemon that may open all nodes of NVIDIA's driver shows every
GPU of its host to its client, and can use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gsaas.gpu_host.daemons.unit import Devices

PROC = Path("/proc/driver/nvidia")
DEV = Path("/dev")
CONTROL = ("nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl")
"""What every client of the NVIDIA driver opens, whatever its GPU."""
MIG = "nvidia-caps"
"""A folder. Daemons on MIG instances see all of it, as the UUID of an instance does not tell which nodes it needs."""


@dataclass(frozen=True)
class NvidiaDevice:
    """The names that the NVIDIA driver gives one GPU."""

    node: str
    """Name in /dev."""
    bus: str
    """Name in /proc/driver/nvidia/gpus."""


def devices(information: Mapping[str, str]) -> dict[str, NvidiaDevice]:
    """Return GPUs by UUID, from the files /proc/driver/nvidia/gpus/BUS/information, given as BUS -> text."""
    found = {}
    for bus, text in information.items():
        pairs = (line.partition(":") for line in text.splitlines())
        facts = {name.strip(): value.strip() for name, _, value in pairs}
        if "GPU UUID" in facts and facts.get("Device Minor", "").isdigit():
            found[facts["GPU UUID"]] = NvidiaDevice(f"nvidia{facts['Device Minor']}", bus)
    return found


def read_devices(proc: Path = PROC) -> dict[str, NvidiaDevice]:
    """Return GPUs by UUID, as the NVIDIA driver lists them now; an empty mapping without a driver."""
    files = proc.glob("gpus/*/information")
    return devices({path.parent.name: path.read_text(encoding="utf-8") for path in files})


def own(
    uuid: str, known: Mapping[str, NvidiaDevice], is_mig: bool, more: Iterable[str] = ()
) -> Devices:
    """Return what a daemon on the GPU *uuid* may use, of *known* GPUs; *more* are further names in /dev.

    Raises `KeyError` if the GPU is not known.
    """
    names = sorted({*CONTROL, known[uuid].node, *((MIG,) if is_mig else ()), *more})
    others = sorted(device.bus for other, device in known.items() if other != uuid)
    return Devices(
        nodes=tuple(str(DEV / name) for name in names),
        groups=(f"char-{MIG}",) if is_mig else (),
        hidden=tuple(str(PROC / "gpus" / bus) for bus in others),
    )
