# SPDX-License-Identifier: Apache-2.0
"""Reads what a GPU host reports about itself: driver, GPUs, MPS, device nodes, ports, its place on the GPU network."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oslo_config import cfg

from gsaas.gpu_host.daemons import devices, ports
from gsaas.prove.verdicts import Gpu
from gsaas.remoting.daemon import DaemonSettings

_MIB = 1 << 20
_COMPUTE_MODES = {0: "DEFAULT", 1: "EXCLUSIVE_THREAD", 2: "PROHIBITED", 3: "EXCLUSIVE_PROCESS"}
MPS_TIMEOUT = 10.0
SAMPLE = 50
"""Ports that are looked at, of each range."""


@dataclass(frozen=True)
class Facts:
    """What was read; None and empty for what could not be."""

    driver: str | None
    gpus: Sequence[Gpu]
    unreadable: dict[str, str] = field(default_factory=dict)
    """What NVML does not answer about, such as the GPU of an index -> its error."""
    mps: dict[str, bool | None] = field(default_factory=dict)
    """Folder of an MPS control daemon -> whether that answers; None: it is not there."""
    missing_nodes: Sequence[str] = ()
    taken_ports: dict[int, str] = field(default_factory=dict)
    local_ports: tuple[int, int] | None = None
    interface: str | None = None
    mtu: int | None = None
    speed_mbit: int | None = None


def read(conf: cfg.ConfigOpts, settings: DaemonSettings, address: str) -> Facts:
    """Read everything of this host, whose address on the GPU network is *address*."""
    driver, gpus, unreadable = nvml()
    interface = interface_of(address)
    return Facts(
        driver,
        gpus,
        unreadable,
        mps_daemons(conf, [gpu.uuid for gpu in gpus]),
        _missing_nodes([gpu.uuid for gpu in gpus]),
        taken_ports(settings),
        local_ports(),
        interface,
        mtu_of(interface),
        speed_of(interface),
    )


def nvml() -> tuple[str | None, list[Gpu], dict[str, str]]:
    """Return the driver's version, the GPUs as NVML reports them, and what it fails to report, with its error."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None, [], {}
    version: str | None = None
    found: list[Gpu] = []
    unreadable: dict[str, str] = {}
    try:
        version = str(pynvml.nvmlSystemGetDriverVersion())
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                found.append(_gpu(pynvml, pynvml.nvmlDeviceGetHandleByIndex(index)))
            except pynvml.NVMLError as error:  # one that has fallen off the bus
                unreadable[f"GPU of index {index}"] = str(error)
    except pynvml.NVMLError as error:
        unreadable["GPUs"] = str(error)
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    return version, found, unreadable


def _gpu(nvml: Any, handle: Any) -> Gpu:
    def ask(function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(handle, *arguments)
        except nvml.NVMLError:
            return None

    persistence = ask(nvml.nvmlDeviceGetPersistenceMode)
    errors = ask(
        nvml.nvmlDeviceGetTotalEccErrors,
        nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        nvml.NVML_VOLATILE_ECC,
    )
    return Gpu(
        nvml.nvmlDeviceGetUUID(handle),
        nvml.nvmlDeviceGetName(handle),
        nvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB,
        None if persistence is None else bool(persistence),
        _COMPUTE_MODES.get(ask(nvml.nvmlDeviceGetComputeMode)),
        errors,
        mig=bool((ask(nvml.nvmlDeviceGetMigMode) or (0,))[0]),
    )


def mps_daemons(conf: cfg.ConfigOpts, uuids: Sequence[str]) -> dict[str, bool | None]:
    """Return the folder of each MPS control daemon that the configuration names, and whether that answers."""
    if conf.daemons.memory_limit != "mps":
        return {}
    template: str = conf.daemons.mps_pipe_directory
    folders = {template.replace("{gpu_uuid}", uuid) for uuid in uuids}
    return {folder: _answers(folder) for folder in sorted(folders)}


def _answers(folder: str) -> bool | None:
    """Return whether the MPS control daemon of a folder answers; None: it is not there."""
    if not Path(folder, "control").exists():
        return None
    try:
        done = subprocess.run(
            ["nvidia-cuda-mps-control"],
            input="get_server_list\n",
            env={"CUDA_MPS_PIPE_DIRECTORY": folder, "PATH": "/usr/bin:/usr/local/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=MPS_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _missing_nodes(uuids: Sequence[str]) -> list[str]:
    known = devices.read_devices()
    wanted = ["nvidiactl", "nvidia-uvm", *(known[uuid].node for uuid in uuids if uuid in known)]
    return [str(devices.DEV / name) for name in wanted if not (devices.DEV / name).exists()]


def taken_ports(settings: DaemonSettings) -> dict[int, str]:
    """Return those of the first ports for daemons on which something listens; none may while no daemon runs."""
    if not settings.per_lease:
        return {}
    first = settings.lease_ports.first
    looked_at = range(first, min(first + SAMPLE, settings.lease_ports.last + 1))
    return {port: "[daemons]lease_ports" for port in looked_at if ports.is_listening(port)}


def local_ports() -> tuple[int, int] | None:
    """Return the first and the last port of outgoing connections."""
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        first, last = map(int, text.split())
    except (OSError, ValueError):
        return None
    return first, last


def interface_of(address: str) -> str | None:
    """Return the interface that has this IPv4 address."""
    try:
        done = subprocess.run(
            ["ip", "-j", "-4", "address"], capture_output=True, text=True, check=True
        )
        links = json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
    for link in links:
        if any(each.get("local") == address for each in link.get("addr_info", ())):
            return str(link["ifname"])
    return None


def mtu_of(interface: str | None) -> int | None:
    """Return the MTU of an interface, in bytes."""
    return _number(interface, "mtu")


def speed_of(interface: str | None) -> int | None:
    """Return the speed of an interface, in Mbit/s."""
    return _number(interface, "speed")


def _number(interface: str | None, name: str) -> int | None:
    try:
        return int(Path(f"/sys/class/net/{interface}/{name}").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None  # an interface that is down or virtual has no speed
