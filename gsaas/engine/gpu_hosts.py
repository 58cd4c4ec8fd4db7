# SPDX-License-Identifier: Apache-2.0
"""Sends GPU hosts their desired state, and stores what their monitors report.

A desired state is numbered under a lock of the row of its host, and read under the same lock. Of two messages, the one
with the larger number therefore describes the later state, and monitors ignore the other.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from sqlalchemy.orm import Session

from gsaas.db import endpoints, hosts, leases
from gsaas.db.database import Database, retried
from gsaas.engine import desired_state
from gsaas.engine.desired_state import GpuHostsState
from gsaas.objects.daemon import DesiredState
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.rpc.monitor import MonitorClient

LOG = logging.getLogger(__name__)

DOWN, UP = "daemon-down", "daemon-up"
"""The events of a lease for a failure of its daemon and for its recovery."""


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
        report = self._monitors.apply(host, self.next_desired_state(host))
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
            if before is not None and before["serial"] > report["serial"]:
                return  # an answer that arrived late, to an earlier desired state
            row.monitor_report = report
            for change in desired_state.daemon_changes(before, report):
                event = UP if change.is_healthy else DOWN
                leases.note(session.connection(), change.lease_id, event, change.detail)

    def handle_report(self, host: str, report: dict[str, Any]) -> list[str]:
        """Store a report that a monitor sent by itself; return the ids of the leases that may go on because of it."""
        self.store_report(host, report)
        with self._database.read() as session:
            there = leases.on_gpus_of(session.connection(), host)
        return [lease.id for lease in there if lease.status != Status.ACTIVE]

    def is_in_sync(self, host: str, report: dict[str, Any]) -> bool:
        """Return whether *report* shows the desired state of *host*."""
        with self._database.read() as session:
            state = self._desired(session, host, report["serial"])
        return desired_state.is_in_sync(report, state)

    def has_excess_admissions(self, host: str, report: dict[str, Any]) -> bool:
        """Return whether the fence of *host* admits an address that it should not, according to *report*."""
        if report["fence"] is None:
            return False
        with self._database.read() as session:
            state = self._desired(session, host, report["serial"])
        return desired_state.has_excess_admissions(report, state)

    def observe(self, lease: Lease) -> GpuHostsState:
        """Return the state of *lease* on its GPU hosts, according to their last stored reports."""
        names = {claim.gpu.host_name for claim in lease.claims}
        if not names:
            return GpuHostsState()
        with self._database.read() as session:
            reports = hosts.monitor_reports(session, names)
            return desired_state.observed(lease, reports, _addresses(session, [lease]))

    def _desired(self, session: Session, host: str, serial: int) -> DesiredState:
        there = leases.on_gpus_of(session.connection(), host)
        return desired_state.desired(host, serial, there, _addresses(session, there))


def _addresses(session: Session, of_leases: Collection[Lease]) -> dict[str, str]:
    """Return the address on the GPU network of each compute host that has a binding of these leases."""
    names = {lease.bound_host for lease in of_leases if lease.bound_host is not None}
    return endpoints.gpu_addresses(session, names) if names else {}
