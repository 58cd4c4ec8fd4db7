"""The pool as the database has it, kept up to date by reading only what changed.

1. Every change of a GPU's row makes its generation grow, so the number of rows and the sum of
   generations tell whether anything changed at all: one row to read.
2. Who claims gives all GPUs that it changes a generation larger than any it knows. What changed
   since the last look is therefore found at the top of the generation index. Others may have used
   the same number at the same moment: if the sum does not come out right, everything is read.
3. An inventory may be wrong for a moment. Claims compare generations when they write, and a
   refusal is believed only after `reload`.
"""

from __future__ import annotations

import datetime
from typing import Any

from oslo_utils import timeutils
from sqlalchemy import Connection, Row, and_, bindparam, exists, func, or_, select

from gsaas.db import queue
from gsaas.db.hosts import is_silent
from gsaas.db.models import EndpointRow, GpuReadingRow, GpuRow, HostRow, SettingRow
from gsaas.db.prepared import Prepared
from gsaas.db.settings import DEFAULT_POLICY
from gsaas.gpgpums.pool import Pool
from gsaas.objects.gpu import Gpu, Withheld, parse_capability
from gsaas.objects.placement import Placement

_MAYBE_WITHHELD = and_(
    or_(
        HostRow.disabled.is_(True),
        HostRow.monitor_seen_at.is_(None),
        HostRow.monitor_seen_at < bindparam("seen_after"),
    ),
    exists().where(GpuRow.host_name == HostRow.name),
)

WITHHELD_HOSTS = select(
    HostRow.name, HostRow.disabled, HostRow.monitor_seen_at, HostRow.monitor_interval
).where(_MAYBE_WITHHELD)

SUMMARY = Prepared(
    select(
        func.count(),
        func.coalesce(func.sum(GpuRow.generation), 0),
        select(func.count()).select_from(EndpointRow).scalar_subquery(),
        select(func.count()).select_from(HostRow).where(_MAYBE_WITHHELD).scalar_subquery(),
        queue.TOP_PRIORITY.scalar_subquery(),
        select(SettingRow.value).where(SettingRow.name == DEFAULT_POLICY).scalar_subquery(),
    ).select_from(GpuRow)
)

GPUS = select(
    GpuRow.uuid,
    GpuRow.host_name,
    GpuRow.device_index,
    GpuRow.memory_mb,
    GpuRow.used_mb,
    GpuRow.exclusive_lease_id,
    GpuRow.generation,
    GpuRow.disabled,
    GpuRow.model,
    GpuRow.compute_capability,
    GpuRow.leases,
    GpuRow.given,
    GpuRow.withdrawn_reason.is_not(None).label("withdrawn"),
)

CHANGED_GPUS = GPUS.where(GpuRow.generation >= bindparam("newest"))

OWN = (Withheld.DISABLED, Withheld.WITHDRAWN)
"""Reasons of a GPU itself, which hold whatever its host does."""

READINGS = select(GpuReadingRow.gpu_uuid, GpuReadingRow.mean_utilisation).where(
    GpuReadingRow.at >= bindparam("since")
)

READINGS_LAST = 5.0
"""Seconds for which readings that were read are good enough: monitors bring new ones less often."""

COMPUTE_HOSTS = select(EndpointRow.host_name)


class PoolCache:
    """A `Pool` and how far it follows the database. Not thread-safe.

    *heartbeat_timeout* is how long a GPU host's monitor may be silent before its GPUs are
    withheld, *utilisation_window* how old a reading may be that says how busy a GPU is; in seconds.
    """

    def __init__(self, heartbeat_timeout: float, utilisation_window: float = 300) -> None:
        self.pool = Pool()
        self.newest = 0
        """The largest generation seen."""
        self.top_priority: int | None = None
        """The highest priority of those who wait in the queue; None if nobody does."""
        self.default_policy: Any = None
        """The default policy that an admin set; None if none did."""
        self._window = datetime.timedelta(seconds=utilisation_window)
        self._readings_age: timeutils.StopWatch | None = None
        self._heartbeat_timeout = heartbeat_timeout
        self._sum = 0
        self._withheld_hosts: dict[str, Withheld] = {}

    def refresh(self, connection: Connection) -> bool:
        """Take over what changed, if anything did; return whether."""
        [summary] = SUMMARY.rows(connection, **self._seen_after())
        count, total, endpoints, suspects = map(int, summary[:4])
        self.top_priority, self.default_policy = summary[4:]
        withheld = self._read_withheld_hosts(connection) if suspects else {}
        changed = False
        if withheld != self._withheld_hosts:
            self._withhold(withheld)
            changed = True
        if (count, total) != (len(self.pool), self._sum):
            for row in connection.execute(CHANGED_GPUS, {"newest": self.newest}):
                self._take_over(row)
            if (count, total) != (len(self.pool), self._sum):
                self._read_all_gpus(connection)
            changed = True
        if endpoints != len(self.pool.compute_hosts):
            self._read_compute_hosts(connection)
            changed = True
        return changed

    def reload(self, connection: Connection) -> None:
        """Read everything."""
        self._withhold(self._read_withheld_hosts(connection))
        self._read_all_gpus(connection)
        self._read_compute_hosts(connection)

    def read_utilisation(self, connection: Connection) -> None:
        """Take over how busy GPUs were, in whole percents, unless that was done a moment ago."""
        if self._readings_age is not None and not self._readings_age.expired():
            return
        rows = connection.execute(READINGS, {"since": timeutils.utcnow() - self._window})
        busy = {row.gpu_uuid: row.mean_utilisation for row in rows}
        for gpu in list(self.pool):
            percent = busy.get(gpu.uuid)
            utilisation = None if percent is None else float(round(percent))
            if utilisation != gpu.utilisation:
                self.pool.put(gpu.with_(utilisation=utilisation))
        self._readings_age = timeutils.StopWatch(READINGS_LAST).start()

    def confirms_host(self, connection: Connection, placement: Placement) -> bool:
        """Is there still a compute host where *placement* wants the VM?

        One that left while another came does not show in their number.
        """
        wanted = (
            EndpointRow.host_name == placement.host
            if placement.host is not None
            else EndpointRow.host_name.not_in(placement.avoid)
        )
        return connection.scalar(COMPUTE_HOSTS.where(wanted).limit(1)) is not None

    def put(self, gpu: Gpu) -> None:
        """Take over a GPU as it is in the database."""
        known = self.pool.get(gpu.uuid)
        if gpu == known:
            return
        self._sum += gpu.generation - (known.generation if known else 0)
        self.newest = max(self.newest, gpu.generation)
        self.pool.put(gpu)

    def _take_over(self, row: Row) -> None:
        if row.disabled:
            withheld = Withheld.DISABLED
        elif row.withdrawn:
            withheld = Withheld.WITHDRAWN
        else:
            withheld = self._withheld_hosts.get(row.host_name)
        known = self.pool.get(row.uuid)
        self.put(
            Gpu(
                row.uuid,
                row.host_name,
                row.device_index,
                row.memory_mb,
                row.used_mb,
                row.exclusive_lease_id is not None,
                row.generation,
                withheld,
                row.model,
                row.compute_capability and parse_capability(row.compute_capability),
                row.leases,
                row.given,
                known.utilisation if known else None,
            )
        )

    def _read_all_gpus(self, connection: Connection) -> None:
        rows = connection.execute(GPUS).all()
        for row in rows:
            self._take_over(row)
        gone = {gpu.uuid for gpu in self.pool} - {row.uuid for row in rows}
        for uuid in gone:
            self._sum -= self.pool.get(uuid).generation
            self.pool.discard(uuid)

    def _read_compute_hosts(self, connection: Connection) -> None:
        self.pool.compute_hosts = connection.scalars(COMPUTE_HOSTS).all()

    def _read_withheld_hosts(self, connection: Connection) -> dict[str, Withheld]:
        rows = connection.execute(WITHHELD_HOSTS, self._seen_after())
        return {
            name: Withheld.HOST_DISABLED if disabled else Withheld.HOST_SILENT
            for name, disabled, seen_at, interval in rows
            if disabled or is_silent(seen_at, interval, self._heartbeat_timeout)
        }

    def _seen_after(self) -> dict[str, datetime.datetime]:
        patience = datetime.timedelta(seconds=self._heartbeat_timeout)
        return {"seen_after": timeutils.utcnow() - patience}

    def _withhold(self, hosts: dict[str, Withheld]) -> None:
        before, self._withheld_hosts = self._withheld_hosts, hosts
        for host in before.keys() | hosts.keys():
            if before.get(host) == hosts.get(host):
                continue
            for gpu in self.pool.on_host(host):
                if gpu.withheld not in OWN:
                    self.pool.put(gpu.with_(withheld=hosts.get(host)))
