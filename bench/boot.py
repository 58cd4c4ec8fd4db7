"""What GSaaS adds to a VM's boot: with 0 to 75 cGPUs, and for 15 to 90 VMs, beside what was published.

On `gsaas-standalone`, where a VM is a namespace and boots at once, and on the OpenStack test bed if it is up or can be
brought up (twenty minutes). A VM without cGPUs is one that Nova boots without GSaaS.

The columns are the stages of the published table. Checking: the cloud is asked whether it would make the server.
Creation and activation: the cloud makes it, and says that it is active. Deployment: the rest of the boot, until the
guest has run its user data. Management: what GSaaS does itself; it chooses and claims GPUs, hands the lease to the
engine, and configures RODVR while the VM boots.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from bench.boots import Boot, Cloud, openstack, standalone
from bench.report import machine, median
from gsaas.objects import timings

CGPUS = (1, 25, 50, 75)
ROUNDS = {"standalone": 9, "OpenStack": 3}
VMS, STEP = 90, 15

PUBLISHED = {
    0: (None, 0.6817, 1.2808, 20.6710, None, 22.6335),
    25: (0.0047, 0.6740, 1.2626, 20.6755, 7.9014, 22.6368),
    50: (0.0047, 0.7397, 1.2588, 20.6769, 15.6715, 22.7101),
    75: (0.0046, 0.7515, 1.3121, 20.6745, 23.3833, 25.4815),
}
"""cGPUs -> seconds of checking, creation, activation, deployment, management, and of the whole boot."""
STAGES = ("checking_s", "creation_s", "activation_s", "deployment_s", "management_s", "boot_s")


def run() -> dict[str, Any]:
    """Medians: seconds of each stage, and milliseconds for each of many VMs."""
    with standalone.running() as cloud:
        sizes, vms = _boots(cloud, CGPUS), _scaled(cloud)
    stages, many = _published() + _stages(cloud.name, sizes), _many(cloud.name, vms)
    reach = _share(cloud.name, sizes[75]) + _as_the_first(cloud.name, vms)
    try:
        with openstack.running() as cloud:
            sizes, vms = _boots(cloud, (0, *CGPUS)), _scaled(cloud)
    except subprocess.CalledProcessError:
        _say("the OpenStack test bed does not come up and is left out")
    else:
        stages += _stages(cloud.name, sizes)
        many += _many(cloud.name, vms)
        reach += _share(cloud.name, sizes[75]) + _of_the_boot(sizes[75])
        reach += _as_the_first(cloud.name, vms)
    return {"bench": "boot", "machine": machine(), "rows": stages + many, "reach": reach}


# VMs with more and more cGPUs


def _boots(cloud: Cloud, sizes: tuple[int, ...]) -> dict[int, list[Boot]]:
    """Boots by number of cGPUs. The sizes take turns, so that a slow moment of the machine hits all of them."""
    booted: dict[int, list[Boot]] = {size: [] for size in sizes}
    for turn in range(ROUNDS[cloud.name]):
        _say(f"{cloud.name}: VMs with {', '.join(map(str, sizes))} cGPUs, round {turn + 1}")
        for size in sizes:
            booted[size].append(cloud.boot(size))
    return booted


def _published() -> list[dict[str, Any]]:
    return [
        {"cloud": "published", "cgpus": size, **dict(zip(STAGES, seconds, strict=True))}
        for size, seconds in PUBLISHED.items()
    ]


def _stages(cloud: str, booted: dict[int, list[Boot]]) -> list[dict[str, Any]]:
    return [
        {"cloud": cloud, "cgpus": size}
        | {stage: _median(_stage(boot, stage) for boot in boots) for stage in STAGES}
        for size, boots in booted.items()
    ]


def _stage(boot: Boot, stage: str) -> float | None:
    took = boot.phases.get
    match stage:
        case "checking_s":
            return took(timings.CHECK)
        case "creation_s":
            return took(timings.CREATION)
        case "activation_s":
            return took(timings.ACTIVATION)
        case "deployment_s":
            before = (timings.CHECK, timings.CREATION, timings.ACTIVATION)
            waited = boot.ours - took(timings.RODVR_CONFIGURATION, 0.0)
            return boot.seconds - waited - sum(took(phase, 0.0) for phase in before)
        case "management_s":
            return boot.ours or None
        case "boot_s":
            return boot.seconds


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _share(cloud: str, boots: list[Boot]) -> list[dict[str, Any]]:
    return [
        {
            "what": f"{cloud}: GSaaS's own work for 75 cGPUs, ms",
            "value": median([boot.ours for boot in boots]) * 1000,
            "bound": "< 100",
        }
    ]


def _of_the_boot(boots: list[Boot]) -> list[dict[str, Any]]:
    """Where a guest really boots: shares of that."""
    checked = [boot.ours + boot.phases[timings.CHECK] for boot in boots]
    return [
        {
            "what": "OpenStack: the same, % of the boot",
            "value": median([100 * boot.ours / boot.seconds for boot in boots]),
            "bound": "< 1",
        },
        {
            "what": "OpenStack: the same and Nova's answers to the check, ms",
            "value": median(checked) * 1000,
            "bound": "< 100",
        },
    ]


# Many VMs with one cGPU each


def _scaled(cloud: Cloud) -> list[Boot]:
    """One VM after the other, all of which stay."""
    booted = []
    for start in range(0, VMS, STEP):
        _say(f"{cloud.name}: VMs {start + 1} to {start + STEP}")
        booted += [cloud.add() for _ in range(STEP)]
    cloud.clear()
    return booted


def _many(cloud: str, booted: list[Boot]) -> list[dict[str, Any]]:
    """A row for each fifteen VMs: medians over them, by the number of VMs there are in the end."""
    return [
        {
            "cloud": cloud,
            "vms": start + STEP,
            "rodvr_ms": _rodvr(booted[start : start + STEP]),
            "management_ms": median([boot.ours for boot in booted[start : start + STEP]]) * 1000,
            "boot_s": median([boot.seconds for boot in booted[start : start + STEP]]),
        }
        for start in range(0, VMS, STEP)
    ]


def _as_the_first(cloud: str, booted: list[Boot]) -> list[dict[str, Any]]:
    return [
        {
            "what": f"{cloud}: RODVR for VMs {VMS - STEP + 1} to {VMS}, times that for the first {STEP}",
            "value": _rodvr(booted[-STEP:]) / _rodvr(booted[:STEP]),
            "bound": "<= 1.5",
        }
    ]


def _rodvr(booted: list[Boot]) -> float:
    return median([boot.phases[timings.RODVR_CONFIGURATION] for boot in booted]) * 1000


def _say(text: str) -> None:
    """Tell who waits how far it is: a real cloud takes twenty minutes."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    json.dump(run(), sys.stdout)
    print()
