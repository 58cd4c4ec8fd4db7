# SPDX-License-Identifier: Apache-2.0
"""The GPUs of the cloud as a map: a row for each host, a tile for each of its GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gsaasclient.sdk.gpus import Gpu
from gsaasclient.sdk.hosts import Host

SHORT = 8
"""Characters of an id that are shown."""

COLOURS = (
    ("free", "#2e7d32"),
    ("shared", "#1d5f91"),
    ("exclusive", "#4a3f8f"),
    ("disabled", "#6d6d6d"),
    ("failed", "#b3261e"),
    ("silent", "#8a5a00"),
)
"""State of a GPU -> its colour, on which white text has a contrast of 4.5 or more. The tile names the state, too."""


class Tile(NamedTuple):
    """One GPU on the map."""

    uuid: str
    number: int
    """Its index on its host."""
    state: str
    """`free`, `shared`, `exclusive`, `disabled`, `failed` or `silent`: what matters most of it now."""
    used: int
    """Percent of its memory that leases have."""
    temperature: str
    holders: list[tuple[str, str]]
    """Id and short id of each lease that has a part of it."""
    text: str
    """All that the tile says."""
    colour: str


class Row(NamedTuple):
    """One host on the map."""

    name: str
    state: str
    notes: list[str]
    tiles: list[Tile]


def rows(hosts: Iterable[Host], gpus: Iterable[Gpu]) -> list[Row]:
    """Return the hosts that have GPUs by name, each with its GPUs by index."""
    by_host: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        by_host.setdefault(gpu.host, []).append(gpu)
    known = {host.name: host for host in hosts}
    return [
        row(
            known.get(name),
            name,
            sorted(by_host[name], key=lambda gpu: (gpu.index is None, gpu.index)),
        )
        for name in sorted(by_host)
    ]


def row(host: Host | None, name: str, gpus: Sequence[Gpu]) -> Row:
    """Return a host's row. *host* is None if the list of hosts does not have it."""
    return Row(name, state(host, gpus), notes(host), [tile(gpu, host) for gpu in gpus])


def state(host: Host | None, gpus: Sequence[Gpu]) -> str:
    """Return how a host is: `in service`, `silent`, `draining, 2 leases left` or `drained`."""
    if host is not None and host.is_disabled:
        left = len({lease for gpu in gpus for lease in gpu.leases or []})
        return f"draining, {left} lease{'' if left == 1 else 's'} left" if left else "drained"
    if host is not None and host.is_silent:
        return "silent"
    return "in service"


def notes(host: Host | None) -> list[str]:
    """Return what else there is to say of a host.

    Why it is disabled, that it is silent, what the leases wait for that are to leave it, and its problems.
    """
    if host is None:
        return []
    said = []
    if host.is_disabled:
        said.append(f"disabled: {host.disabled_reason}" if host.disabled_reason else "disabled")
        if host.is_silent:
            said.append("silent")
        left = (host.drain or {}).get("leases") or []
        said += [f"lease {lease['id'][:SHORT]}: {lease['waits'] or '-'}" for lease in left]
    return [*said, *(str(problem) for problem in host.problems or [])]


def tile(gpu: Gpu, host: Host | None) -> Tile:
    """Return the tile of a GPU."""
    used = round(100 * (gpu.used_mb or 0) / gpu.memory_mb) if gpu.memory_mb else 0
    kind = tile_state(gpu, host)
    measured = (gpu.reading or {}).get("temperature_c")
    temperature = "" if measured is None else f"{measured:.0f} °C"
    said = [
        f"GPU {gpu.index}, {gpu.model}: {kind}",
        f"{gpu.used_mb or 0} of {gpu.memory_mb} MiB claimed",
        *([temperature] if temperature else []),
        *([f"failed: {gpu.withdrawn}"] if gpu.withdrawn else []),
        *([f"disabled: {gpu.disabled_reason}"] if gpu.is_disabled and gpu.disabled_reason else []),
        *([f"{len(gpu.leases)} lease{'' if len(gpu.leases) == 1 else 's'}"] if gpu.leases else []),
    ]
    return Tile(
        uuid=gpu.uuid,
        number=gpu.index,
        state=kind,
        used=min(used, 100),
        temperature=temperature,
        holders=[(lease, lease[:SHORT]) for lease in gpu.leases or []],
        text=", ".join(said),
        colour=dict(COLOURS).get(kind, COLOURS[0][1]),
    )


def tile_state(gpu: Gpu, host: Host | None) -> str:
    """Return what matters most of a GPU: what keeps new leases away, else what it is used for."""
    if gpu.withdrawn:
        return "failed"
    if gpu.is_disabled or (host is not None and host.is_disabled):
        return "disabled"
    if host is not None and host.is_silent:
        return "silent"
    return gpu.mode or "free"
