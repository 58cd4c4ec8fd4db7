"""The gauges: how things are, from what the database says. Values in, metrics out; any API worker says the same."""

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
)

MIB = 2**20


def gauges(state: CloudState) -> Iterator[Metric]:
    """Every gauge of a cloud that is in *state*."""
    yield _labelled(
        "gsaas_leases",
        "Leases by status; those that are released are not counted.",
        "status",
        state.leases,
    )
    yield GaugeMetricFamily(
        "gsaas_leases_degraded",
        "Leases that hold GPUs that have failed, or whose monitors are silent.",
        state.degraded,
    )
    yield GaugeMetricFamily(
        "gsaas_queue_wait_max_seconds",
        "For how long the one that has waited longest in the queue has waited.",
        state.longest_wait,
    )
    yield GaugeMetricFamily("gsaas_cgpus", "cGPUs that leases hold.", state.cgpus)
    yield from _gpus(state.gpus)
    yield from _agents("gsaas_gpu_hosts", "GPU hosts in service", "monitor", state.monitors)
    yield from _agents("gsaas_endpoints", "RODVR endpoints in service", "endpoint", state.endpoints)
    yield from _bindings(state.bindings)
    yield from _daemons(state.daemons)


def each_gpu(gpus: Sequence[GpuGauge]) -> Iterator[Metric]:
    """The gauges of every GPU by itself; none of them for no GPU. What a GPU does not tell is left out."""
    for name, text, value in _OF_A_GPU if gpus else ():
        family = GaugeMetricFamily(name, text, labels=["host", "gpu", "model"])
        for gpu in gpus:
            number = value(gpu)
            if number is not None:
                family.add_metric([gpu.host, gpu.uuid, gpu.model], number)
        yield family


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * MIB


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


_OF_A_GPU: tuple[tuple[str, str, Callable[[GpuGauge], float | None]], ...] = (
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
        "Memory of a GPU that leases hold.",
        lambda gpu: _bytes(gpu.held_mb),
    ),
    (
        "gsaas_gpu_memory_in_use_bytes",
        "Memory of a GPU that is in use, by whomever.",
        lambda gpu: _bytes(gpu.used_mb),
    ),
    (
        "gsaas_gpu_temperature_celsius",
        "Temperature of a GPU.",
        lambda gpu: gpu.temperature_c,
    ),
    ("gsaas_gpu_power_watts", "Power that a GPU draws.", lambda gpu: gpu.power_w),
)


def _gpus(models: Mapping[str, GpuTotals]) -> Iterator[Metric]:
    told = (
        ("gsaas_gpus", "GPUs", lambda gpus: gpus.known),
        (
            "gsaas_gpus_idle",
            "GPUs on offer that no lease holds anything of",
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
            "Memory of the GPUs that leases hold",
            lambda gpus: gpus.used_mb * MIB,
        ),
    )
    for name, text, value in told:
        values = {model: value(gpus) for model, gpus in models.items()}
        yield _labelled(name, f"{text}, by model.", "model", values)


def _agents(name: str, what: str, agent: str, agents: AgentTotals) -> Iterator[Metric]:
    yield GaugeMetricFamily(name, f"{what}.", agents.known)
    yield GaugeMetricFamily(
        f"{name}_silent",
        f"{what} not heard of for longer than [gpgpums]heartbeat_timeout.",
        agents.silent,
    )
    yield GaugeMetricFamily(
        f"gsaas_{agent}_silence_max_seconds",
        f"{what}: the longest time that one of them has not been heard of.",
        agents.longest,
    )


def _bindings(bindings: BindingTotals) -> Iterator[Metric]:
    yield _labelled(
        "gsaas_bindings",
        "BindingTotals that endpoints hold; one is pending while its VM has no tap.",
        "state",
        {"installed": bindings.installed, "pending": bindings.pending},
    )
    yield GaugeMetricFamily(
        "gsaas_endpoints_with_problems",
        "RODVR endpoints that report something for an operator to mend.",
        bindings.with_problems,
    )
    yield _labelled(
        "gsaas_dropped_packets",
        "Packets dropped of the VMs that are bound now, by reason: to a masked address without a "
        "mapping, or refused at the tap.",
        "reason",
        bindings.dropped,
    )


def _daemons(daemons: DaemonTotals) -> Iterator[Metric]:
    yield _labelled(
        "gsaas_daemons", "DaemonTotals on GPU hosts in service, by state.", "state", daemons.states
    )
    yield GaugeMetricFamily(
        "gsaas_daemon_restarts",
        "How often the daemons that there are now were started again.",
        daemons.restarts,
    )
    yield GaugeMetricFamily(
        "gsaas_fence_refused",
        "Connections that the fences of GPU hosts refused, since their tables were made.",
        daemons.refused,
    )
    yield GaugeMetricFamily(
        "gsaas_gpu_hosts_with_problems",
        "GPU hosts that report something for an operator to mend.",
        daemons.with_problems,
    )


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family
