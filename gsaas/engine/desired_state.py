"""What GPU hosts are to hold for leases, and what of a lease they hold: values in, values out.

1. A lease that is over is left out of what its GPU hosts are told to hold. A daemon that a host does not report any
   more after that is gone; its port may be given to another.
2. Whether a lease has daemons of its own is written in its claims, from the claim until each end is confirmed: what
   may run can always be found and ended.
3. A fence admits the compute host that was told of the lease's binding, and whoever redeemed a grant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gsaas.objects.daemon import Admission, Daemon, DaemonState, DesiredState
from gsaas.objects.gpu import EXCLUSIVE
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import Status

ENTITLED = frozenset({Status.CLAIMED, Status.BOOTING, Status.ACTIVE})
"""Only these may reach GPUs."""

Reports = Mapping[str, Mapping[str, Any]]
"""GPU host -> what its monitor said last, as `gsaas.objects.daemon.DaemonReport.to_dict()`."""
Addresses = Mapping[str, str]
"""Compute host -> its address on the GPU network."""


@dataclass(frozen=True)
class Held:
    """What the GPU hosts of one lease hold for it, as far as they have said."""

    untold: str | None = None
    """A GPU host that does not hold all it should."""
    ailing: str | None = None
    """Why its cGPUs cannot be used yet, as the end of a sentence for its tenant: it names no host, no address."""
    daemons: bool = False
    """It may have daemons of its own."""
    draining: bool = False
    """All of these have been asked to end."""
    fenced: bool = False
    """Some GPU host of it has a fence."""


NOTHING_HELD = Held()


def wanted(host: str, serial: int, leases: Iterable[Lease], addresses: Addresses) -> DesiredState:
    """Return all that *host* is to hold for those who have claims on its GPUs."""
    daemons: set[Daemon] = set()
    admissions: set[Admission] = set()
    for lease in leases:
        if lease.status not in ENTITLED:
            continue
        for claim in lease.claims:
            if claim.gpu.host_name == host:
                if claim.daemon_port is not None:
                    daemons.add(daemon(lease, claim))
                admissions.update(admitted(lease, claim, addresses))
    return DesiredState(serial, frozenset(daemons), frozenset(admissions))


def daemon(lease: Lease, claim: Claim) -> Daemon:
    """The daemon that serves one cGPU alone."""
    return Daemon(
        gpu_uuid=claim.gpu_uuid,
        port=claim.daemon_port,
        memory_mb=None if lease.mode == EXCLUSIVE else claim.memory_mb,
        lease_id=lease.id,
        position=claim.position,
    )


def admitted(lease: Lease, claim: Claim, addresses: Addresses) -> Iterator[Admission]:
    """Who may connect to the daemon of one cGPU."""
    port = claim.daemon_port or claim.gpu.daemon_port
    if lease.bound_host in addresses:
        yield Admission(addresses[lease.bound_host], port)
    if lease.admitted_address is not None:
        yield Admission(lease.admitted_address, port)


def held(lease: Lease, reports: Reports, addresses: Addresses) -> Held:
    """Look at *lease* through the eyes of its GPU hosts."""
    untold: list[str] = []
    ailing: list[str] = []
    draining: list[bool] = []
    fenced = False
    for claim in lease.claims:
        host = claim.gpu.host_name
        report = reports.get(host)
        if claim.daemon_port is not None:
            said = _said_of(daemon(lease, claim), report)
            draining.append(said is not None and said["state"] == DaemonState.DRAINING)
            if said is None or said["state"] == DaemonState.DRAINING:
                untold.append(host)
            elif said["state"] != DaemonState.HEALTHY:
                why = f": {said['detail']}" if said["detail"] else ""
                ailing.append(f"the daemon of its cGPU {claim.position} is {said['state']}{why}")
        fence = None if report is None else report.get("fence")
        if fence is not None:
            fenced = True
            if {str(each) for each in admitted(lease, claim, addresses)} - set(fence["admissions"]):
                untold.append(host)
    if fenced and lease.bound_host is not None and lease.bound_host not in addresses:
        ailing.append(
            "the endpoint of its host has not said what its address on the GPU network is"
        )
    return Held(
        untold=min(untold, default=None),
        ailing=ailing[0] if ailing else None,
        daemons=bool(draining),
        draining=bool(draining) and all(draining),
        fenced=fenced,
    )


def agrees(report: Mapping[str, Any], right: DesiredState) -> bool:
    """Does a host hold what it should?"""
    fence = report.get("fence")
    holds = {
        key
        for key, said in report["daemons"].items()
        if said["lease_id"] is not None and said["state"] != DaemonState.DRAINING
    }
    if holds != {each.key for each in right.daemons}:
        return False
    return fence is None or set(fence["admissions"]) == {str(each) for each in right.admissions}


def changes(
    before: Mapping[str, Any] | None, after: Mapping[str, Any]
) -> Iterator[tuple[str, bool, str]]:
    """Which daemons of single cGPUs failed or recovered between two reports: lease, whether it is well, a sentence."""
    known = {} if before is None else before["daemons"]
    for key, said in sorted(after["daemons"].items()):
        if said["lease_id"] is None or key not in known:
            continue
        was = known[key]
        name = f"the daemon of cGPU {said['position']}"
        restarted = _is_well(was) and said["restarts"] > was["restarts"]
        if restarted or (not _is_ill(was) and _is_ill(said)):
            yield said["lease_id"], False, f"{name} is down: {said['detail'] or 'it ended'}"
        if _is_well(said) and (restarted or _is_ill(was)):
            yield said["lease_id"], True, f"{name} is well again, after {_times(said)}"


def _is_well(said: Mapping[str, Any]) -> bool:
    return said["state"] == DaemonState.HEALTHY


def _is_ill(said: Mapping[str, Any]) -> bool:
    """It is down, or on its way back from there."""
    again = said["state"] == DaemonState.STARTING and said["restarts"] > 0
    return again or said["state"] in (DaemonState.DOWN, DaemonState.UNRESPONSIVE)


def _times(said: Mapping[str, Any]) -> str:
    return "1 restart" if said["restarts"] == 1 else f"{said['restarts']} restarts"


def _said_of(wanted: Daemon, report: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What a report says of exactly this daemon."""
    said = None if report is None else report["daemons"].get(wanted.key)
    same = said is not None and (said["gpu_uuid"], said["port"]) == (wanted.gpu_uuid, wanted.port)
    return said if same else None
