# SPDX-License-Identifier: Apache-2.0
"""Which device nodes a daemon needs, and which cores.

CUDA obeys `CUDA_VISIBLE_DEVICES` and NVML does not, so a daemon that may open all nodes of NVIDIA's driver shows every
GPU of its host to its client, and can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from gsaas.gpu_host.daemons.runner import CannotStart
from gsaas.gpu_host.daemons.unit import Devices
from gsaas.objects.daemon import Daemon
from gsaas.objects.device_kinds import CPU, kind_of
from gsaas.objects.gpu import MIG_INSTANCE

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
    uuids: Collection[str],
    known: Mapping[str, NvidiaDevice],
    is_mig: bool,
    more: Iterable[str] = (),
) -> Devices:
    """Return what a daemon on the GPUs *uuids* may use, of *known* GPUs; *more* are further names in /dev.

    Raises `KeyError` if one of them is not known.
    """
    nodes = {known[uuid].node for uuid in uuids}
    names = sorted({*CONTROL, *nodes, *((MIG,) if is_mig else ()), *more})
    others = sorted(device.bus for other, device in known.items() if other not in uuids)
    return Devices(
        nodes=tuple(str(DEV / name) for name in names),
        groups=(f"char-{MIG}",) if is_mig else (),
        hidden=tuple(str(PROC / "gpus" / bus) for bus in others),
    )


class HostDevices:
    """The devices of this host, as `[daemons]` lets daemons use them.

    *own*: each daemon may use those of its own GPU only, and the nodes *more_nodes* in /dev. *parents* returns the UUID
    of the GPU that a MIG instance is part of. *cores* are those of each CPU device, by its UUID.
    """

    def __init__(
        self,
        *,
        own: bool,
        more_nodes: Sequence[str],
        parents: Callable[[str], str | None],
        cores: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._own = own
        self._more_nodes = tuple(more_nodes)
        self._parents = parents
        self._cores = cores

    def of(self, daemon: Daemon) -> Devices | None:
        """Return the devices of a daemon, None for all of NVIDIA's driver; raises `CannotStart`."""
        if kind_of(daemon.gpu_uuid) == CPU:
            cores = (self._cores.get(uuid, ()) for uuid in daemon.gpus)
            return Devices((), cores=tuple(chain.from_iterable(cores)))
        if not self._own:
            return None
        is_mig = daemon.gpu_uuid.startswith(MIG_INSTANCE)
        uuids = [self._parents(daemon.gpu_uuid) or ""] if is_mig else daemon.gpus
        try:
            return own(uuids, read_devices(), is_mig, self._more_nodes)
        except KeyError as error:
            unknown = daemon.gpu_uuid if is_mig else error.args[0]
            raise CannotStart(
                f"cannot start: the NVIDIA driver of this host does not list {unknown}, so its device "
                "node is not known; see [daemons]own_devices"
            ) from None
        except OSError as error:
            raise CannotStart(
                f"cannot start: the GPUs of this host cannot be read: {error}"
            ) from None
