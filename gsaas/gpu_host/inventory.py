# SPDX-License-Identifier: Apache-2.0
"""Hosts and GPUs that a file declares: those that gsaas-standalone simulates, and those of GPU hosts with
`[monitor]source = declared`. Pure except for `load`, which reads the file.
"""

from __future__ import annotations

import ipaddress
import re
import tomllib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gsaas.objects import host_names
from gsaas.objects.device_kinds import CPU, CPU_PREFIX, CUDA, UUID, kind_of
from gsaas.objects.gpu_report import GpuInfo

_CAPABILITY = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
_UUID_NAMESPACE = uuid.UUID("6b1f7a52-41f1-5d0c-9c0f-0f6e6e2a6d53")
_RESERVED = {"switch", "vm"}
"""Names of network namespaces that gsaas-standalone makes for itself, besides `vm-*`."""


class InventoryError(Exception):
    """The inventory is not valid; the message says where and why."""


@dataclass(frozen=True)
class HostSpec:
    """A machine: a GPU host if it has GPUs, a compute host if VMs may run on it."""

    name: str
    gpu_address: str
    """Its IPv4 address on the GPU network."""
    compute: bool = True
    model: str = "Quadro M4000"
    gpus: int = 0
    """How many of this model."""
    memory_mb: int = 8192
    """MiB of each."""
    compute_capability: str | None = None
    """CUDA's, such as 9.0; None: not declared."""
    uuids: Sequence[str] = ()
    """Their UUIDs, as `nvidia-smi -L` lists them; derived from the host's name if none are given."""
    kind: str = CUDA
    """Of `gsaas.objects.device_kinds`."""

    def gpu_infos(self, ports: Sequence[int]) -> list[GpuInfo]:
        """Return its GPUs as a monitor reports them; *ports* are those of their daemons."""
        return [
            GpuInfo(
                uuid=self.uuids[index] if self.uuids else self._derived_uuid(index),
                device_index=index,
                model=self.model,
                memory_mb=self.memory_mb,
                daemon_port=ports[index],
                compute_capability=self.compute_capability,
            )
            for index in range(self.gpus)
        ]

    def _derived_uuid(self, index: int) -> str:
        prefix = CPU_PREFIX if self.kind == CPU else "GPU-"
        return f"{prefix}{uuid.uuid5(_UUID_NAMESPACE, f'{self.name}/{index}')}"


@dataclass(frozen=True)
class Inventory:
    """Hosts on one GPU network; raises `InventoryError` if they are not valid."""

    gpu_network: str
    """IPv4 prefix, such as 192.168.50.0/24."""
    hosts: tuple[HostSpec, ...]

    def __post_init__(self) -> None:
        network = _network(self.gpu_network)
        if not self.hosts:
            raise InventoryError("the inventory has no hosts")
        for host in self.hosts:
            _check_host(host, network)
        for what, values in (
            ("name", [host.name for host in self.hosts]),
            ("gpu_address", [host.gpu_address for host in self.hosts]),
            ("GPU", [name for host in self.hosts for name in host.uuids]),
        ):
            for value in {value for value in values if values.count(value) > 1}:
                raise InventoryError(f"two hosts have the {what} {value}")

    def host(self, name: str) -> HostSpec:
        """Return the GPU host *name*; raises `InventoryError`."""
        for host in self.gpu_hosts:
            if host.name == name:
                return host
        known = ", ".join(host.name for host in self.gpu_hosts) or "none"
        raise InventoryError(f"no GPU host {name} is declared; those that are: {known}")

    @property
    def compute_hosts(self) -> tuple[HostSpec, ...]:
        """The hosts on which VMs may run."""
        return tuple(host for host in self.hosts if host.compute)

    @property
    def gpu_hosts(self) -> tuple[HostSpec, ...]:
        """The hosts that have GPUs."""
        return tuple(host for host in self.hosts if host.gpus)


def load(path: str | None) -> Inventory:
    """Return the inventory of the TOML file *path*, `DEFAULT` for None; raises `InventoryError`."""
    if path is None:
        return DEFAULT
    try:
        return parse(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InventoryError(f"cannot read the inventory: {error}") from None
    except InventoryError as error:
        raise InventoryError(f"{path}: {error}") from None


def parse(text: str) -> Inventory:
    """Return the inventory that *text*, in TOML, declares; raises `InventoryError`."""
    try:
        data = tomllib.loads(text)
        hosts = data.pop("hosts", [])
        if not isinstance(hosts, list) or not all(isinstance(host, dict) for host in hosts):
            raise InventoryError("hosts are tables, each under a line [[hosts]]")
        return Inventory(hosts=tuple(HostSpec(**host) for host in hosts), **data)
    except tomllib.TOMLDecodeError as error:
        raise InventoryError(f"not TOML: {error}") from None
    except TypeError as error:
        # A key that is unknown or missing: "HostSpec.__init__() got an unexpected keyword argument 'gpu'".
        raise InventoryError(str(error).partition("__init__() ")[2] or str(error)) from None


def _network(text: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(text)
    except (ValueError, TypeError) as error:
        raise InventoryError(f"gpu_network: {error}") from None


def _check_host(host: HostSpec, network: ipaddress.IPv4Network) -> None:
    if not host_names.is_valid(host.name):
        raise InventoryError(f"{host.name!r} is not a host name: {host_names.RULE}")
    if host.name in _RESERVED or host.name.startswith("vm-"):
        raise InventoryError(f"the host name {host.name} is reserved")
    try:
        address = ipaddress.IPv4Address(host.gpu_address)
    except ValueError as error:
        raise InventoryError(f"{host.name}: gpu_address: {error}") from None
    if address not in network:
        raise InventoryError(f"{host.name}: gpu_address {address} is not in {network}")
    if not isinstance(host.compute, bool):
        raise InventoryError(f"{host.name}: compute has to be true or false, not {host.compute!r}")
    for what, value, least in (("gpus", host.gpus, 0), ("memory_mb", host.memory_mb, 1)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InventoryError(f"{host.name}: {what} has to be a whole number from {least}")
    if host.uuids and len(host.uuids) != host.gpus:
        raise InventoryError(f"{host.name}: {len(host.uuids)} uuids for {host.gpus} GPUs")
    for name in host.uuids:
        if not isinstance(name, str) or not UUID.fullmatch(name):
            raise InventoryError(f"{host.name}: {name!r} is not the UUID of a GPU")
    if host.kind not in (CUDA, CPU):
        raise InventoryError(f"{host.name}: kind has to be {CUDA} or {CPU}, not {host.kind!r}")
    if any(kind_of(name) != host.kind for name in host.uuids):
        raise InventoryError(
            f"{host.name}: the UUID of a device of kind {CPU}, and of no other, begins with CPU-"
        )
    capability = host.compute_capability
    if capability is not None and not (
        isinstance(capability, str) and _CAPABILITY.fullmatch(capability)
    ):
        raise InventoryError(f'{host.name}: compute_capability has to be a text such as "8.0"')
    if not isinstance(host.model, str) or not 0 < len(host.model) < 256:
        raise InventoryError(f"{host.name}: model has to be a text of at most 255 characters")


DEFAULT = Inventory(
    gpu_network="192.168.50.0/24",
    hosts=(
        HostSpec("gpu1", "192.168.50.11", gpus=4),
        HostSpec("gpu2", "192.168.50.12", gpus=4),
        HostSpec("compute1", "192.168.50.21"),
    ),
)
"""The inventory without a file; `etc/gsaas/inventory.toml` declares the same."""
