# SPDX-License-Identifier: Apache-2.0
"""Sends GPU hosts their desired state, and stores what their monitors report.

A desired state is numbered under a lock of the row of its host, and read under the same lock. Of two messages, the one
with the larger number therefore describes the later state, and monitors ignore the other.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from gsaas.db import endpoints, hosts, leases
from gsaas.db.database import Database, retried
from gsaas.engine import desired_state, host_reports
from gsaas.engine.desired_state import DaemonChange, GpuHostsState
from gsaas.objects.daemon import DesiredState
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import ENTITLED, Status
from gsaas.rpc.hosts import AgentCallFailed
from gsaas.rpc.monitor import MonitorClient

LOG = logging.getLogger(__name__)

DOWN, UP = "daemon-down", "daemon-up"
"""The events of a lease for a failure of its daemon and for its recovery."""


class HandledReport(NamedTuple):
    """What follows from the report of a monitor on daemons and fence."""

    waiting: list[str]
    """The leases that may go on because of it."""
    in_sync: bool
    """Whether it shows the desired state of its host."""


class GpuHosts:
    """The monitors of all GPU hosts. Safe to share between threads."""

    def __init__(self, database: Database, monitors: MonitorClient) -> None:
        self._database = database
        self._monitors = monitors

    def reconcile(self, host: str) -> dict[str, Any]:
        """Send *host* its desired state; return its report, which is newer than this call.

        The report is `gsaas.objects.daemon.DaemonReport.to_dict()`, and is stored. Raises
        `gsaas.rpc.hosts.AgentCallFailed`.
        """
        answer = self._monitors.apply(host, self.next_desired_state(host))
        try:
            report = host_reports.gpu_host_report(answer)
        except ValueError as error:
            raise AgentCallFailed(f"the monitor of {host} sent no valid report: {error}") from error
        self.store_report(host, report)
        return report

    @retried
    def next_desired_state(self, host: str) -> DesiredState:
        """Return the desired state of *host* now, with the next number of that host."""
        with self._database.write() as session:
            serial = hosts.next_serial(session, host)
            return self._desired(session, host, serial)

    @retried
    def store_report(self, host: str, report: dict[str, Any]) -> None:
        """Store a report of a monitor unless a newer one is stored; record failed and recovered daemons as events."""
        with self._database.write() as session:
            row = hosts.ensure(
                session, host
            )  # locks the row: reports of one host are compared one by one
            before = row.monitor_report
            # A number that no engine has given does not keep later reports out for ever.
            if before is not None and report["serial"] < before["serial"] <= row.wanted_serial:
                return  # an answer that arrived late, to an earlier desired state
            row.monitor_report = report
            self._note_changes(session, host, list(desired_state.daemon_changes(before, report)))

    def _note_changes(self, session: Session, host: str, changes: Collection[DaemonChange]) -> None:
        """Record failed and recovered daemons as events of their leases, of those with GPUs of *host* only."""
        if not changes:
            return
        connection = session.connection()
        own = {
            (lease.id, claim.position)
            for lease in leases.on_gpus_of(connection, host)
            for claim in lease.claims
            if claim.gpu.host_name == host
        }
        # At most one of each kind for a cGPU, however many daemons a report says that it has.
        news = {(each.lease_id, each.position, each.is_healthy): each for each in changes}
        for change in news.values():
            if (change.lease_id, change.position) in own:
                event = UP if change.is_healthy else DOWN
                leases.note(connection, change.lease_id, event, change.detail)

    def handle_report(self, host: str, report: dict[str, Any]) -> HandledReport:
        """Store a report that a monitor sent by itself; return what follows from it."""
        self.store_report(host, report)
        with self._database.read() as session:
            there = leases.on_gpus_of(session.connection(), host)
            state = desired_state.desired(host, report["serial"], there, _addresses(session, there))
        return HandledReport(
            [lease.id for lease in there if lease.status != Status.ACTIVE or lease.moving],
            desired_state.is_in_sync(report, state),
        )

    def has_excess_admissions(self, host: str, report: dict[str, Any]) -> bool:
        """Return whether the fence of *host* admits an address that it should not, according to *report*."""
        if report["fence"] is None:
            return False
        with self._database.read() as session:
            state = self._desired(session, host, report["serial"])
        return desired_state.has_excess_admissions(report, state)

    def observe(self, session: Session, lease: Lease) -> tuple[GpuHostsState, GpuHostsState]:
        """Return the state of *lease* on its GPU hosts, according to their last stored reports.

        The second state is that of its other claims, `Lease.others`. What is to be cleaned up is in the first one
        if the lease is over.
        """
        names = {claim.gpu.host_name for claim in lease.all_claims}
        if not names:
            return GpuHostsState(), GpuHostsState()
        reports = hosts.monitor_reports(session, names)
        addresses = _addresses(session, [lease])
        own = lease.claims if lease.status in ENTITLED else lease.all_claims
        return (
            desired_state.observed(lease, reports, addresses, own),
            desired_state.observed(lease, reports, addresses, lease.others),
        )

    def _desired(self, session: Session, host: str, serial: int) -> DesiredState:
        there = leases.on_gpus_of(session.connection(), host)
        return desired_state.desired(host, serial, there, _addresses(session, there))


def _addresses(session: Session, of_leases: Collection[Lease]) -> dict[str, str]:
    """Return the address on the GPU network of each compute host that has a binding of these leases."""
    names = {lease.bound_host for lease in of_leases if lease.bound_host is not None}
    return endpoints.gpu_addresses(session, names) if names else {}
