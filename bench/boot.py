# SPDX-License-Identifier: Apache-2.0
"""What GSaaS adds to a VM's boot: with 0 to 75 cGPUs, and for 15 to 90 VMs, beside what was published.

On `gsaas-standalone`, where a VM is a namespace and boots at once, and on the OpenStack test bed if it is up or can be
brought up (twenty minutes). A VM without cGPUs is one that Nova boots without GSaaS.

The columns are the stages of the published table. Checking: the cloud is asked whether it would create the server.
Creation and activation: the cloud creates it, until it is active. Deployment: the rest of the boot, until the guest has
run its user data. Management: the work of GSaaS, which chooses and claims GPUs, hands the lease to the engine, and
configures RODVR while the VM boots.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench.boots import Boot, BootTarget, openstack, standalone
from bench.report import machine, median, progress
from gsaas.objects import timings


@dataclass(frozen=True)
class Size:
    """How much is measured, and how often."""

    cgpus: tuple[int, ...] = (1, 25, 50, 75)
    standalone_rounds: int = 9
    openstack_rounds: int = 3
    vms: int = 90
    """Launched one after the other."""
    step: int = 15
    """Of so many VMs each a median is printed."""


QUICK = Size(cgpus=(1, 75), standalone_rounds=1, openstack_rounds=1, vms=2, step=1)
PARTS = ("standalone", "openstack")

PUBLISHED = {
    0: (None, 0.6817, 1.2808, 20.6710, None, 22.6335),
    25: (0.0047, 0.6740, 1.2626, 20.6755, 7.9014, 22.6368),
    50: (0.0047, 0.7397, 1.2588, 20.6769, 15.6715, 22.7101),
    75: (0.0046, 0.7515, 1.3121, 20.6745, 23.3833, 25.4815),
}
"""cGPUs -> seconds of checking, creation, activation, deployment, management, and of the whole boot."""
STAGES = ("checking_s", "creation_s", "activation_s", "deployment_s", "management_s", "boot_s")


def run(*parts: str, quick: bool = False) -> dict[str, Any]:
    """Return medians: seconds of each stage, and milliseconds for each of many VMs. *quick* boots few of them."""
    size = QUICK if quick else Size()
    stages, many, reach = _published(), [], []
    if "standalone" in (parts or PARTS):
        with standalone.running() as target:
            boots = _boot_sizes(target, size.cgpus, size.standalone_rounds)
            vms = _boot_many(target, size)
        stages += _stage_rows(target.name, boots)
        many += _many_rows(target.name, vms, size)
        reach += _gsaas_work_bound(target.name, boots[75]) + _growth_bound(target.name, vms, size)
    if "openstack" in (parts or PARTS):
        try:
            with openstack.running() as bed:
                boots = _boot_sizes(bed, (0, *size.cgpus), size.openstack_rounds)
                vms = _boot_many(bed, size)
        except subprocess.CalledProcessError:
            progress("the OpenStack test bed does not come up and is left out")
        else:
            stages += _stage_rows(bed.name, boots)
            many += _many_rows(bed.name, vms, size)
            reach += _gsaas_work_bound(bed.name, boots[75]) + _share_of_boot_bounds(boots[75])
            reach += _growth_bound(bed.name, vms, size)
    return {"bench": "boot", "machine": machine(), "rows": stages + many, "reach": reach}


# VMs with more and more cGPUs


def _boot_sizes(target: BootTarget, sizes: tuple[int, ...], rounds: int) -> dict[int, list[Boot]]:
    """Return boots by number of cGPUs. The sizes take turns, so that a slow moment of the machine affects all."""
    booted: dict[int, list[Boot]] = {size: [] for size in sizes}
    for turn in range(rounds):
        progress(f"{target.name}: VMs with {', '.join(map(str, sizes))} cGPUs, round {turn + 1}")
        for size in sizes:
            booted[size].append(target.boot(size))
    return booted


def _published() -> list[dict[str, Any]]:
    return [
        {"cloud": "published", "cgpus": size, **dict(zip(STAGES, seconds, strict=True))}
        for size, seconds in PUBLISHED.items()
    ]


def _stage_rows(cloud: str, booted: dict[int, list[Boot]]) -> list[dict[str, Any]]:
    return [
        {"cloud": cloud, "cgpus": size}
        | {stage: _median(_stage_seconds(boot, stage) for boot in boots) for stage in STAGES}
        for size, boots in booted.items()
    ]


def _stage_seconds(boot: Boot, stage: str) -> float | None:
    """Return the seconds of one of `STAGES`; None if the boot did not have it."""
    phase_seconds = boot.phases.get
    match stage:
        case "checking_s":
            return phase_seconds(timings.CHECK)
        case "creation_s":
            return phase_seconds(timings.CREATION)
        case "activation_s":
            return phase_seconds(timings.ACTIVATION)
        case "deployment_s":
            before = (timings.CHECK, timings.CREATION, timings.ACTIVATION)
            # RODVR is configured while the VM boots: the boot does not wait for it.
            waited = boot.gsaas_seconds - phase_seconds(timings.RODVR_CONFIGURATION, 0.0)
            return boot.seconds - waited - sum(phase_seconds(phase, 0.0) for phase in before)
        case "management_s":
            return boot.gsaas_seconds or None
        case "boot_s":
            return boot.seconds
        case _:
            raise ValueError(stage)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _gsaas_work_bound(cloud: str, boots: list[Boot]) -> list[dict[str, Any]]:
    return [
        {
            "what": f"{cloud}: GSaaS's own work for 75 cGPUs, ms",
            "value": median([boot.gsaas_seconds for boot in boots]) * 1000,
            "bound": "< 100",
        }
    ]


def _share_of_boot_bounds(boots: list[Boot]) -> list[dict[str, Any]]:
    """Return the bounds on GSaaS's work relative to the boot of a real guest."""
    checked = [boot.gsaas_seconds + boot.phases[timings.CHECK] for boot in boots]
    return [
        {
            "what": "OpenStack: the same, % of the boot",
            "value": median([100 * boot.gsaas_seconds / boot.seconds for boot in boots]),
            "bound": "< 1",
        },
        {
            "what": "OpenStack: the same and Nova's answers to the check, ms",
            "value": median(checked) * 1000,
            "bound": "< 100",
        },
    ]


# Many VMs with one cGPU each


def _boot_many(target: BootTarget, size: Size) -> list[Boot]:
    """Boot VMs one after the other, which all stay until the end; return their boots."""
    booted = []
    for start in range(0, size.vms, size.step):
        progress(f"{target.name}: VMs {start + 1} to {start + size.step}")
        booted += [target.add() for _ in range(size.step)]
    target.clear()
    return booted


def _many_rows(cloud: str, booted: list[Boot], size: Size) -> list[dict[str, Any]]:
    """Return a row for each `size.step` VMs: medians over them, and the number of VMs after them."""
    steps = {
        end: booted[end - size.step : end] for end in range(size.step, size.vms + 1, size.step)
    }
    return [
        {
            "cloud": cloud,
            "vms": end,
            "rodvr_ms": _rodvr_ms(boots),
            "management_ms": median([boot.gsaas_seconds for boot in boots]) * 1000,
            "boot_s": median([boot.seconds for boot in boots]),
        }
        for end, boots in steps.items()
    ]


def _growth_bound(cloud: str, booted: list[Boot], size: Size) -> list[dict[str, Any]]:
    first, last = booted[: size.step], booted[-size.step :]
    return [
        {
            "what": f"{cloud}: RODVR for VMs {size.vms - size.step + 1} to {size.vms}, "
            f"times that for the first {size.step}",
            "value": _rodvr_ms(last) / _rodvr_ms(first),
            "bound": "<= 1.5",
        }
    ]


def _rodvr_ms(booted: list[Boot]) -> float:
    return median([boot.phases[timings.RODVR_CONFIGURATION] for boot in booted]) * 1000


if __name__ == "__main__":
    json.dump(run(), sys.stdout)
    print()
