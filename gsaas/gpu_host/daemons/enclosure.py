# SPDX-License-Identifier: Apache-2.0
"""A daemon's own view of the devices: which device nodes it sees, and the command line that starts it so.

CUDA obeys `CUDA_VISIBLE_DEVICES` and NVML does not, so a daemon that sees all of /dev shows every GPU of its host to
its client. The script `enclose.sh` gives it a /dev, and a /proc/driver/nvidia, with its own GPU only, in a mount
namespace that ends with its processes. That /dev is read-only: otherwise the NVIDIA libraries make the missing nodes
themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

PROC = Path("/proc/driver/nvidia")
COMMON = ("full", "null", "random", "tty", "urandom", "zero")
CONTROL = ("nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl")
"""What every client of the NVIDIA driver opens, whatever its GPU."""
MIG = ("nvidia-caps",)
"""A folder. Daemons on MIG instances see all of it, as the UUID of an instance does not tell which nodes it needs."""
_CAP_SETPCAP = 8
SCRIPT = resources.files("gsaas.gpu_host.daemons") / "enclose.sh"


class NoDevice(Exception):
    """The NVIDIA driver does not list this GPU; the message says so."""


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


def nodes(device: NvidiaDevice, is_mig: bool, more: Iterable[str] = ()) -> list[str]:
    """Return the names in /dev that a daemon on *device* sees, with those of *more*."""
    return sorted({*COMMON, *CONTROL, device.node, *(MIG if is_mig else ()), *more})


def wrap(
    argv: Sequence[str],
    *,
    join_file: str | None,
    user: str | None = None,
    device: NvidiaDevice | None = None,
    nodes: Sequence[str] = (),
    scratch: Path = Path("/run"),
    dev: Path = Path("/dev"),
    proc: Path = PROC,
) -> list[str]:
    """Return the command line that starts *argv* without capabilities and with the device nodes *nodes* only.

    *join_file* is the file of a control group that a process joins by writing its PID to it; None: there is none.
    Without *device* all of /dev stays as it is. *scratch* is an existing folder; the script mounts file systems over
    it, which only the daemon sees.
    """
    bus = "" if device is None else device.bus
    bounding = "--bounding-set=-all" if _has_setpcap() else ""
    options = [join_file or "", user or "", bounding, str(scratch), str(dev), str(proc), bus]
    return ["/bin/sh", str(SCRIPT), *options, " ".join(nodes), *argv]


def _has_setpcap() -> bool:
    """Return whether this process has CAP_SETPCAP, and so may take all capabilities from daemons that run as root."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> _CAP_SETPCAP & 1)
