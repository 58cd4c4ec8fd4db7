# SPDX-License-Identifier: Apache-2.0
"""The desired state of a GPU host, and the differences from its reported state. Pure: no database and no message bus.

1. A lease that is over is left out of the desired state of its GPU hosts. A daemon that a host no longer reports after
   that is gone, and its port may be given to another daemon.
2. The claims of a lease record whether it has daemons of its own, from the claim until the end of each daemon is
   confirmed, and no binding leads there. So every daemon that may run can be found and ended, and no port is given to
   another one while the consumer of a former lease reaches it.
3. While a cGPU moves (`gsaas.objects.move`), both of its GPUs are served, until masked addresses lead to the new one.
4. The fence of a GPU host admits the compute host whose endpoint has the binding of a lease, and the address from
   which the grant of a lease was redeemed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gsaas.objects.address import Address
from gsaas.objects.daemon import Admission, Daemon, DaemonState, DesiredState
from gsaas.objects.device_kinds import CUDA, kind_of
from gsaas.objects.gpu import EXCLUSIVE
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import ENTITLED
from gsaas.objects.move import SERVED

Reports = Mapping[str, Mapping[str, Any]]
"""GPU host -> the last report of its monitor, as `gsaas.objects.daemon.DaemonReport.to_dict()`."""
Addresses = Mapping[str, str]
"""Compute host -> its address on the GPU network."""
START_ATTEMPTS = 4
"""A launch is given up when the daemon of a cGPU has failed so often: with the usual pauses, after seven seconds."""


@dataclass(frozen=True)
class GpuHostsState:
    """The observed state of one lease on its GPU hosts, according to their last reports."""

    out_of_sync_host: str | None = None
    """A GPU host that lacks something of the desired state; None if there is none."""
    not_ready_reason: str | None = None
    """Why the cGPUs cannot be used yet, as the end of a sentence for the tenant: names no host and no address."""
    hopeless: bool = False
    """That reason has not gone away in `START_ATTEMPTS` starts of the daemon."""
    has_daemons: bool = False
    """The lease may have daemons of its own."""
    has_fence: bool = False
    """At least one of its GPU hosts has a fence."""


NOTHING_ON_GPU_HOSTS = GpuHostsState()


class DaemonChange(NamedTuple):
    """A daemon of a lease failed or recovered."""

    lease_id: str
    position: int
    """The number in its lease of the cGPU that it serves, or of the first one."""
    is_healthy: bool
    detail: str
    """A sentence for the events of the lease."""


def desired(host: str, serial: int, leases: Iterable[Lease], addresses: Addresses) -> DesiredState:
    """Return the desired state of *host* for *leases*, numbered *serial*."""
    daemons: set[Daemon] = set()
    admissions: set[Admission] = set()
    for lease in leases:
        if lease.status not in ENTITLED:
            continue
        for claim in served_claims(lease):
            if claim.gpu.host_name == host:
                if (daemon := daemon_of(lease, claim)) is not None:
                    daemons.add(daemon)
                admissions.update(admissions_of(lease, claim, addresses))
    return DesiredState(serial, frozenset(daemons), frozenset(admissions))


def served_claims(lease: Lease) -> tuple[Claim, ...]:
    """Return the claims of an entitled lease whose GPU hosts serve its consumer."""
    return lease.all_claims if lease.moving in SERVED else lease.claims


def daemon_of(lease: Lease, claim: Claim) -> Daemon | None:
    """Return the daemon of the lease that serves the cGPU of *claim*; None if the daemon of its GPU serves it."""
    if claim.daemon_port is None:
        return None
    is_exclusive = lease.mode == EXCLUSIVE
    where = (claim.daemon_host, claim.daemon_port)
    first, *others = (
        one for one in lease.all_claims if (one.daemon_host, one.daemon_port) == where
    )
    return Daemon(
        gpu_uuid=first.gpu_uuid,
        port=claim.daemon_port,
        # A whole GPU limits by itself what its daemon gets; a whole CPU device is a part of the host's memory.
        memory_mb=None if is_exclusive and kind_of(claim.gpu_uuid) == CUDA else claim.memory_mb,
        lease_id=lease.id,
        position=first.position,
        other_gpus=tuple(one.gpu_uuid for one in others),
        ports=lease.ports_per_daemon,
        turn=claim.daemon_turn,
    )


def admissions_of(lease: Lease, claim: Claim, addresses: Addresses) -> Iterator[Admission]:
    """Yield the admissions to the daemon of one cGPU, to each of its ports."""
    admitted = [addresses.get(lease.bound_host or ""), lease.admitted_address]
    for address in filter(None, admitted):
        first = Address(address, claim.daemon_port or claim.gpu.daemon_port)
        for each in first.and_after(lease.ports_per_daemon):
            yield Admission(each.ip, each.port)


def observed(
    lease: Lease, reports: Reports, addresses: Addresses, claims: Iterable[Claim] | None = None
) -> GpuHostsState:
    """Return the state of *lease* on its GPU hosts according to *reports*; with *claims*, of what these are about."""
    out_of_sync: list[str] = []
    not_ready: list[str] = []
    has_daemons = has_fence = hopeless = False
    for claim in lease.claims if claims is None else claims:
        host = claim.gpu.host_name
        report = reports.get(host)
        if (daemon := daemon_of(lease, claim)) is not None:
            has_daemons = True
            status = _reported_status(daemon, report)
            if status is None or status["state"] == DaemonState.DRAINING:
                out_of_sync.append(host)
            elif status["state"] != DaemonState.HEALTHY:
                why = f": {status['detail']}" if status["detail"] else ""
                reason = f"the daemon of its {_cgpus_phrase(status)} is {status['state']}{why}"
                if _has_failed_often(status):
                    hopeless = True
                    not_ready.insert(0, reason)
                else:
                    not_ready.append(reason)
        fence = None if report is None else report.get("fence")
        if fence is not None:
            has_fence = True
            admissions = {str(each) for each in admissions_of(lease, claim, addresses)}
            if admissions - set(fence["admissions"]):
                out_of_sync.append(host)
    if has_fence and lease.bound_host is not None and lease.bound_host not in addresses:
        not_ready.append("the endpoint of its host has not reported its address on the GPU network")
    return GpuHostsState(
        out_of_sync_host=min(out_of_sync, default=None),
        not_ready_reason=not_ready[0] if not_ready else None,
        hopeless=hopeless,
        has_daemons=has_daemons,
        has_fence=has_fence,
    )


def is_in_sync(report: Mapping[str, Any], state: DesiredState) -> bool:
    """Return whether a host reports exactly the daemons and the admissions of *state*, its desired state."""
    running = {
        key
        for key, status in report["daemons"].items()
        if status["lease_id"] is not None and status["state"] != DaemonState.DRAINING
    }
    if running != {daemon.key for daemon in state.daemons}:
        return False
    fence = report.get("fence")
    return fence is None or set(fence["admissions"]) == _admissions(state)


def has_excess_admissions(report: Mapping[str, Any], state: DesiredState) -> bool:
    """Return whether the fence of a host that has one admits an address that *state*, its desired state, does not."""
    return not set(report["fence"]["admissions"]) <= _admissions(state)


def daemon_changes(
    before: Mapping[str, Any] | None, after: Mapping[str, Any]
) -> Iterator[DaemonChange]:
    """Yield which daemons of leases failed or recovered between two reports of a host."""
    known = {} if before is None else before["daemons"]
    for key, status in sorted(after["daemons"].items()):
        if status["lease_id"] is None:
            continue
        # The first report of a daemon may say already that it could not be started.
        former = known.get(key, _UNKNOWN)
        name = f"the daemon of {_cgpus_phrase(status)}"
        # It failed and recovered between the two reports.
        restarted = _is_healthy(former) and status["restarts"] > former["restarts"]
        if restarted or (not _has_failed(former) and _has_failed(status)):
            detail = f"{name} is down: {status['detail'] or 'it ended'}"
            yield DaemonChange(status["lease_id"], status["position"], False, detail)
        if _is_healthy(status) and (restarted or _has_failed(former)):
            detail = f"{name} is healthy again, after {_restarts(status)}"
            yield DaemonChange(status["lease_id"], status["position"], True, detail)


_UNKNOWN: Mapping[str, Any] = {"state": DaemonState.STARTING, "restarts": 0}
"""The status of a daemon that has not been reported."""


def _has_failed_often(status: Mapping[str, Any]) -> bool:
    """Return whether a daemon is down and has failed to start several times since it was last healthy."""
    # Monitors of the release before report only how often it was started again in its whole life.
    failed_starts = status.get("failed_starts", status["restarts"] + 1)
    return bool(status["state"] == DaemonState.DOWN and failed_starts >= START_ATTEMPTS)


def _is_healthy(status: Mapping[str, Any]) -> bool:
    return bool(status["state"] == DaemonState.HEALTHY)


def _has_failed(status: Mapping[str, Any]) -> bool:
    """Return whether a daemon is down, unresponsive, or being restarted because it was."""
    restarting = status["state"] == DaemonState.STARTING and status["restarts"] > 0
    return restarting or status["state"] in (DaemonState.DOWN, DaemonState.UNRESPONSIVE)


def _cgpus_phrase(status: Mapping[str, Any]) -> str:
    """Return the numbers of the cGPUs that a daemon serves, as a phrase."""
    first, others = status["position"], len(status.get("other_gpus", ()))
    return f"cGPUs {first} to {first + others}" if others else f"cGPU {first}"


def _restarts(status: Mapping[str, Any]) -> str:
    return "1 restart" if status["restarts"] == 1 else f"{status['restarts']} restarts"


def _admissions(state: DesiredState) -> set[str]:
    return {str(admission) for admission in state.admissions}


def _reported_status(daemon: Daemon, report: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the reported status of exactly this daemon; None if it is not reported."""
    status: Mapping[str, Any] | None = None if report is None else report["daemons"].get(daemon.key)
    if status is None:
        return None
    reported = status["gpu_uuid"], *status.get("other_gpus", ()), status["port"]
    return status if reported == (*daemon.gpus, daemon.port) else None
