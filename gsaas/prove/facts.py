# SPDX-License-Identifier: Apache-2.0
"""Reads what a GPU host reports about itself: driver, GPUs, MPS, device nodes, ports, its place on the GPU network."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oslo_config import cfg

from gsaas.gpu_host.daemons import devices, memory_limit, ports
from gsaas.gpu_host.sources import cpu
from gsaas.netlink.addresses import interface_of
from gsaas.objects.gpu_report import MAX_GPUS, UNKNOWN_MODEL
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
    mps: dict[str, bool | str | None] = field(default_factory=dict)
    """Folder of an MPS control daemon -> whether that answers, as `mps_daemons` returns it."""
    missing_nodes: Sequence[str] = ()
    taken_ports: dict[int, str] = field(default_factory=dict)
    local_ports: tuple[int, int] | None = None
    interface: str | None = None
    mtu: int | None = None
    speed_mbit: int | None = None


def read(conf: cfg.ConfigOpts, settings: DaemonSettings, address: str) -> Facts:
    """Read everything of this host, whose address on the GPU network is *address*.

    Raises `gsaas.gpu_host.sources.base.SourceUnavailable` if it has less than its CPU devices need.
    """
    interface = interface_of(address)
    if conf.monitor.source == "cpu":
        return Facts(
            None,
            cpu_devices(conf),
            taken_ports=taken_ports(settings),
            local_ports=local_ports(),
            interface=interface,
            mtu=mtu_of(interface),
            speed_mbit=speed_of(interface),
        )
    driver, gpus, unreadable = nvml(conf.monitor.unified_memory_mb)
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


def cpu_devices(conf: cfg.ConfigOpts) -> list[Gpu]:
    """Return the CPU devices of this host; raises `gsaas.gpu_host.sources.base.SourceUnavailable`."""
    found = cpu.load(conf, socket.gethostname(), range(conf.monitor.cpu_devices)).snapshot().gpus
    return [Gpu(device.uuid, device.model, device.memory_mb) for device in found]


def nvml(unified_memory_mb: int | None) -> tuple[str | None, list[Gpu], dict[str, str]]:
    """Return the driver's version, the GPUs as NVML reports them, and what it fails to report, with its error.

    A GPU whose memory the driver cannot tell has *unified_memory_mb* MiB.
    """
    import pynvml

    from gsaas.gpu_host.sources.nvml_answers import Unusable, text

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None, [], {}
    version: str | None = None
    found: list[Gpu] = []
    unreadable: dict[str, str] = {}
    try:
        version = text(pynvml.nvmlSystemGetDriverVersion) or "unknown"
        for index in range(min(pynvml.nvmlDeviceGetCount(), MAX_GPUS)):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                found.append(_gpu(pynvml, handle, unified_memory_mb))
            except (pynvml.NVMLError, Unusable) as error:  # one that has fallen off the bus
                unreadable[f"GPU of index {index}"] = str(error)
    except (pynvml.NVMLError, Unusable) as error:
        unreadable["GPUs"] = str(error)
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
    return version, found, unreadable


def _gpu(nvml: Any, handle: Any, unified_memory_mb: int | None) -> Gpu:
    from gsaas.gpu_host.sources.nvml_answers import memory_of, text, uuid_of

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
        uuid_of(handle),
        text(nvml.nvmlDeviceGetName, handle) or UNKNOWN_MODEL,
        memory_of(handle, unified_memory_mb).total // _MIB,
        None if persistence is None else bool(persistence),
        _COMPUTE_MODES.get(ask(nvml.nvmlDeviceGetComputeMode)),
        errors,
        mig=bool((ask(nvml.nvmlDeviceGetMigMode) or (0,))[0]),
    )


def mps_daemons(conf: cfg.ConfigOpts, uuids: Sequence[str]) -> dict[str, bool | str | None]:
    """Return the folder of each MPS control daemon that the configuration names, and whether that answers.

    A text says why the folder is not trusted, so that daemons with a limit are not started; None: no daemon is there.
    """
    if conf.daemons.memory_limit != "mps":
        return {}
    template: str = conf.daemons.mps_pipe_directory
    folders = {template.replace("{gpu_uuid}", uuid) for uuid in uuids}
    return {folder: _answers(folder) for folder in sorted(folders)}


def _answers(folder: str) -> bool | str | None:
    """Return whether the MPS control daemon of a folder answers, as `mps_daemons` does."""
    if not Path(folder, "control").exists():
        return None
    if why := memory_limit.distrust(Path(folder)):
        return why
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
