"""Tells the monitors of GPU hosts what to hold, and notes what they say.

What a host is told is numbered under a lock of its row, and read under the same lock: of two messages, the one with the
larger number says what was true later, and monitors take no notice of the other.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from sqlalchemy.orm import Session

from gsaas.db import endpoints, hosts, leases
from gsaas.db.database import Database, retried
from gsaas.engine import desired_state
from gsaas.engine.desired_state import Held
from gsaas.objects.daemon import DesiredState
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status
from gsaas.rpc.monitor import MonitorClient

LOG = logging.getLogger(__name__)

DOWN, UP = "daemon-down", "daemon-up"
"""What the story of a lease calls an end of its daemon that nobody asked for, and its recovery."""


class GpuHosts:
    """The monitors of all GPU hosts. Safe to share between threads."""

    def __init__(self, database: Database, monitors: MonitorClient) -> None:
        self._database = database
        self._monitors = monitors

    def sync(self, host: str) -> dict[str, Any]:
        """Have *host* hold what it should, and return its report, which is newer than this call.

        Raises `gsaas.rpc.hosts.AgentCallFailed`.
        """
        wanted = self.orders(host)
        report = self._monitors.apply(host, wanted)
        self.note(host, report)
        return report

    @retried
    def orders(self, host: str) -> DesiredState:
        """What *host* is to hold now, under a number of its own."""
        with self._database.write() as session:
            serial = hosts.next_serial(session, host)
            return self._wanted(session, host, serial)

    @retried
    def note(self, host: str, report: dict[str, Any]) -> None:
        """Take over what a monitor said, unless something newer is known; tell the stories of leases."""
        with self._database.write() as session:
            row = hosts.ensure(session, host)
            before = row.monitor_report
            if before is not None and before["serial"] > report["serial"]:
                return
            row.monitor_report = report
            for lease_id, well, sentence in desired_state.changes(before, report):
                leases.note(session.connection(), lease_id, UP if well else DOWN, sentence)

    def heard(self, host: str, report: dict[str, Any]) -> list[str]:
        """Note a report that came by itself; return the leases that may go on because of it."""
        self.note(host, report)
        with self._database.read() as session:
            concerned = leases.on_gpus_of(session.connection(), host)
        return [lease.id for lease in concerned if lease.status != Status.ACTIVE]

    def is_right(self, host: str, report: dict[str, Any]) -> bool:
        """Does *report* say what *host* should hold?"""
        with self._database.read() as session:
            return desired_state.agrees(report, self._wanted(session, host, report["serial"]))

    def is_shut(self, host: str, report: dict[str, Any]) -> bool:
        """Does the fence of *host* let nobody in, as far as *report* says, who should stay out?"""
        if report["fence"] is None:
            return True
        with self._database.read() as session:
            right = self._wanted(session, host, report["serial"])
        return set(report["fence"]["admissions"]) <= {str(each) for each in right.admissions}

    def held(self, lease: Lease) -> Held:
        """What the GPU hosts of *lease* hold for it, as far as they have said."""
        names = {claim.gpu.host_name for claim in lease.claims}
        if not names:
            return Held()
        with self._database.read() as session:
            reports = hosts.monitor_reports(session, names)
            return desired_state.held(lease, reports, _addresses(session, [lease]))

    def _wanted(self, session: Session, host: str, serial: int) -> DesiredState:
        found = leases.on_gpus_of(session.connection(), host)
        return desired_state.wanted(host, serial, found, _addresses(session, found))


def _addresses(session: Session, concerned: Collection[Lease]) -> dict[str, str]:
    names = {lease.bound_host for lease in concerned if lease.bound_host is not None}
    return endpoints.gpu_addresses(session, names) if names else {}
