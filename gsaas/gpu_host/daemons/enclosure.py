"""A daemon's own view of the devices: which nodes it may see, and the wrapper in which it is started.

`CUDA_VISIBLE_DEVICES` holds for CUDA and not for NVML, so a daemon that sees all of /dev shows every GPU of its host to
its client. The wrapper (`enclose.sh`) gives it a /dev, and a /proc/driver/nvidia, with its own GPU only, in a mount
namespace that ends with its processes. That /dev is read-only: the NVIDIA libraries would otherwise make the missing
nodes themselves.
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
"""A folder: which of its nodes belong to one MIG instance cannot be told from the instance's UUID."""
_CAP_SETPCAP = 8
SCRIPT = resources.files("gsaas.gpu_host.daemons") / "enclose.sh"


class NoDevice(Exception):
    """The driver does not know this GPU; the message says so."""


@dataclass(frozen=True)
class Device:
    """What the NVIDIA driver calls one GPU."""

    node: str
    """Name in /dev."""
    bus: str
    """Name in /proc/driver/nvidia/gpus."""


def devices(information: Mapping[str, str]) -> dict[str, Device]:
    """GPUs by UUID, from the files `information` of /proc/driver/nvidia/gpus, by folder."""
    found = {}
    for bus, text in information.items():
        pairs = (line.partition(":") for line in text.splitlines())
        facts = {name.strip(): value.strip() for name, _, value in pairs}
        if "GPU UUID" in facts and facts.get("Device Minor", "").isdigit():
            found[facts["GPU UUID"]] = Device(f"nvidia{facts['Device Minor']}", bus)
    return found


def read_devices(proc: Path = PROC) -> dict[str, Device]:
    """GPUs by UUID, as the driver lists them now; none without a driver."""
    files = proc.glob("gpus/*/information")
    return devices({path.parent.name: path.read_text(encoding="utf-8") for path in files})


def nodes(device: Device, is_mig: bool, more: Iterable[str] = ()) -> list[str]:
    """The names in /dev that a daemon on *device* may see."""
    return sorted({*COMMON, *CONTROL, device.node, *(MIG if is_mig else ()), *more})


def wrap(
    words: Sequence[str],
    *,
    group_file: str | None,
    user: str | None = None,
    device: Device | None = None,
    visible: Sequence[str] = (),
    scratch: Path = Path("/run"),
    dev: Path = Path("/dev"),
    proc: Path = PROC,
) -> list[str]:
    """The command line that starts *words* in a control group, with *visible* device nodes only.

    *group_file* is where a process writes its number to enter the group. Without *device* all of /dev stays as it is.
    *scratch* is an existing folder, over which file systems are mounted that nobody else sees.
    """
    bus = "" if device is None else device.bus
    bounding = "--bounding-set=-all" if _may_drop_for_good() else ""
    options = [group_file or "", user or "", bounding, str(scratch), str(dev), str(proc), bus]
    return ["/bin/sh", str(SCRIPT), *options, " ".join(visible), *words]


def _may_drop_for_good() -> bool:
    """Whether we may keep a daemon that runs as root from having capabilities at all (CAP_SETPCAP)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> _CAP_SETPCAP & 1)
