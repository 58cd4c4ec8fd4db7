# SPDX-License-Identifier: Apache-2.0
"""Gauges of the cloud's state as the database has it: every API worker reports the same. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from gsaas.db.metrics import (
    AgentTotals,
    BindingTotals,
    CloudState,
    DaemonTotals,
    GpuGauge,
    GpuTotals,
    Verified,
)
from gsaas.objects.device_kinds import kind_of

MIB = 2**20


def gauges(state: CloudState) -> Iterator[Metric]:
    """Yield every gauge of a cloud that is in *state*, but those of single GPUs."""
    yield _by_label(
        "gsaas_leases",
        "Leases by status; those that are released are not counted.",
        "status",
        state.leases,
    )
    yield GaugeMetricFamily(
        "gsaas_leases_degraded",
        "Leases with GPUs that have failed, or whose monitors are silent.",
        state.degraded,
    )
    yield GaugeMetricFamily(
        "gsaas_queue_wait_max_seconds",
        "Seconds that the oldest request in the queue has waited.",
        state.longest_wait,
    )
    yield GaugeMetricFamily("gsaas_cgpus", "cGPUs of all leases.", state.cgpus)
    yield from _gpus(state.gpus)
    yield GaugeMetricFamily(
        "gsaas_gpus_disputed",
        "GPUs that a host reports although another host has them.",
        state.disputed,
    )
    yield from _agents("gsaas_gpu_hosts", "GPU hosts in service", "monitor", state.monitors)
    yield from _agents("gsaas_endpoints", "RODVR endpoints in service", "endpoint", state.endpoints)
    yield from _bindings(state.bindings)
    yield from _daemons(state.daemons)
    yield from _verified(state.verified)


def each_gpu(gpus: Sequence[GpuGauge]) -> Iterator[Metric]:
    """Yield the gauges of every single GPU; none if there is no GPU. A reading that a GPU does not give is left out."""
    for name, text, value in _GPU_GAUGES if gpus else ():
        family = GaugeMetricFamily(name, text, labels=["host", "gpu", "model", "kind"])
        for gpu in gpus:
            number = value(gpu)
            if number is not None:
                family.add_metric([gpu.host, gpu.uuid, gpu.model, kind_of(gpu.uuid)], number)
        yield family


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * MIB


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


_GPU_GAUGES: tuple[tuple[str, str, Callable[[GpuGauge], float | None]], ...] = (
    (
        "gsaas_gpu_utilisation_ratio",
        "Part of the time in which a GPU was busy, from 0 to 1.",
        lambda gpu: _ratio(gpu.utilisation),
    ),
    (
        "gsaas_gpu_memory_size_bytes",
        "Memory of a GPU.",
        lambda gpu: _bytes(gpu.memory_mb),
    ),
    (
        "gsaas_gpu_memory_held_bytes",
        "Memory of a GPU that leases have claimed.",
        lambda gpu: _bytes(gpu.claimed_mb),
    ),
    (
        "gsaas_gpu_memory_in_use_bytes",
        "Memory of a GPU that is in use, by leases and other programs.",
        lambda gpu: _bytes(gpu.used_mb),
    ),
    (
        "gsaas_gpu_temperature_celsius",
        "Temperature of a GPU.",
        lambda gpu: gpu.temperature_c,
    ),
    ("gsaas_gpu_power_watts", "Power that a GPU draws.", lambda gpu: gpu.power_w),
)


def _gpus(totals: Mapping[tuple[str, str], GpuTotals]) -> Iterator[Metric]:
    families: tuple[tuple[str, str, Callable[[GpuTotals], float]], ...] = (
        ("gsaas_gpus", "GPUs", lambda gpus: gpus.known),
        (
            "gsaas_gpus_idle",
            "GPUs on offer of which no lease and no reservation has any memory",
            lambda gpus: gpus.idle,
        ),
        (
            "gsaas_gpus_withheld",
            "GPUs that are not on offer: they have failed, or they or their hosts are disabled",
            lambda gpus: gpus.withheld,
        ),
        ("gsaas_gpu_memory_bytes", "Memory of the GPUs", lambda gpus: gpus.memory_mb * MIB),
        (
            "gsaas_gpu_memory_used_bytes",
            "Memory of the GPUs that leases have claimed",
            lambda gpus: gpus.used_mb * MIB,
        ),
        (
            "gsaas_gpu_memory_reserved_bytes",
            "Memory of the GPUs that is kept for reservations and that none of their leases uses yet",
            lambda gpus: gpus.reserved_mb * MIB,
        ),
    )
    for name, text, value in families:
        family = GaugeMetricFamily(name, f"{text}, by model and kind.", labels=["model", "kind"])
        for labels, gpus in sorted(totals.items()):
            family.add_metric(labels, value(gpus))
        yield family


def _agents(name: str, what: str, agent: str, agents: AgentTotals) -> Iterator[Metric]:
    yield GaugeMetricFamily(name, f"{what}.", agents.known)
    yield GaugeMetricFamily(
        f"{name}_silent",
        f"{what} whose last report is older than [gpgpums]heartbeat_timeout.",
        agents.silent,
    )
    yield GaugeMetricFamily(
        f"gsaas_{agent}_silence_max_seconds",
        f"{what}: seconds since the oldest of their last reports.",
        agents.longest,
    )


def _bindings(bindings: BindingTotals) -> Iterator[Metric]:
    yield _by_label(
        "gsaas_bindings",
        "Bindings of endpoints; one is pending while its VM has no tap.",
        "state",
        {"installed": bindings.installed, "pending": bindings.pending},
    )
    yield GaugeMetricFamily(
        "gsaas_endpoints_with_problems",
        "RODVR endpoints that report a problem for an operator to repair.",
        bindings.with_problems,
    )
    yield GaugeMetricFamily(
        "gsaas_endpoint_conntrack_max_ratio",
        "Part of its table of connections that is taken on the compute host where it is fullest, from 0 to 1.",
        bindings.conntrack,
    )
    yield _by_label(
        "gsaas_dropped_packets",
        "Packets dropped of the VMs that are bound now, by reason: to a masked address without a "
        "mapping, or refused at the tap.",
        "reason",
        bindings.dropped,
    )


def _daemons(daemons: DaemonTotals) -> Iterator[Metric]:
    yield _by_label(
        "gsaas_daemons", "Daemons on GPU hosts in service, by state.", "state", daemons.states
    )
    yield GaugeMetricFamily(
        "gsaas_daemon_restarts",
        "Restarts of the daemons that run now.",
        daemons.restarts,
    )
    yield GaugeMetricFamily(
        "gsaas_fence_refused",
        "Connections that the fences of GPU hosts refused, since their tables were made.",
        daemons.refused,
    )
    yield GaugeMetricFamily(
        "gsaas_gpu_hosts_with_problems",
        "GPU hosts that report a problem for an operator to repair.",
        daemons.with_problems,
    )


def _verified(verified: Verified) -> Iterator[Metric]:
    yield _by_label(
        "gsaas_differences",
        "Differences that gsaas-manage verify --record left at its last run, by kind.",
        "kind",
        verified.differences,
    )
    yield GaugeMetricFamily(
        "gsaas_differences_not_asked",
        "Agents, or clouds, that did not answer gsaas-manage verify --record at its last run.",
        verified.not_asked,
    )
    yield GaugeMetricFamily(
        "gsaas_differences_recorded_seconds",
        "When gsaas-manage verify --record ran last, in seconds since 1970; 0 if it never did.",
        verified.at,
    )


def _by_label(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family
