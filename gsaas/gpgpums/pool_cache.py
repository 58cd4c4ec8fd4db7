# SPDX-License-Identifier: Apache-2.0
"""A copy of the database's GPUs in memory, kept up to date by reading only what has changed.

1. Every change of a GPU's row increases its generation. So the number of rows and the sum of their generations show
   whether anything has changed at all, and are read as one row.
2. A claim gives all GPUs that it changes a generation larger than any it knows. The changes since the last refresh are
   therefore at the top of the index of generations. Another process may have used the same number at the same moment:
   if the sum of generations is then still wrong, all rows are read.
3. The copy may be out of date. Claims compare generations when they write, and a request is refused only after
   `reload`.
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
from gsaas.objects.gpu import Gpu, WithheldReason, parse_capability
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

GPU_REASONS = (WithheldReason.DISABLED, WithheldReason.WITHDRAWN)
"""Reasons that concern a GPU itself, and go before those of its host."""

READINGS = select(GpuReadingRow.gpu_uuid, GpuReadingRow.mean_utilisation).where(
    GpuReadingRow.at >= bindparam("since")
)

READINGS_TTL = 5.0
"""Seconds for which readings are not read again: monitors report less often."""

COMPUTE_HOSTS = select(EndpointRow.host_name)


class PoolCache:
    """A `Pool` that follows the database. Not thread-safe.

    *heartbeat_timeout* is how long a GPU host's monitor may be silent before its GPUs are withheld, and
    *utilisation_window* how old a reading of a GPU's utilisation may be, in seconds.
    """

    def __init__(self, heartbeat_timeout: float, utilisation_window: float = 300) -> None:
        self.pool = Pool()
        self.newest_generation = 0
        """The largest generation of any GPU so far."""
        self.top_priority: int | None = None
        """The highest priority of the leases in the queue; None if the queue is empty."""
        self.default_policy: Any = None
        """The default policy that an administrator has set; None if none has."""
        self._window = datetime.timedelta(seconds=utilisation_window)
        self._readings_age: timeutils.StopWatch | None = None
        self._heartbeat_timeout = heartbeat_timeout
        self._sum = 0
        self._withheld_hosts: dict[str, WithheldReason] = {}

    def refresh(self, connection: Connection) -> bool:
        """Read what has changed; return whether anything has.

        Sets `top_priority` and `default_policy`, too, which do not count as a change.
        """
        [summary] = SUMMARY.rows(connection, **self._seen_after())
        count, total, endpoints, maybe_withheld = map(int, summary[:4])
        self.top_priority, self.default_policy = summary[4:]
        withheld = self._read_withheld_hosts(connection) if maybe_withheld else {}
        changed = False
        if withheld != self._withheld_hosts:
            self._withhold(withheld)
            changed = True
        if (count, total) != (len(self.pool), self._sum):
            for row in connection.execute(CHANGED_GPUS, {"newest": self.newest_generation}):
                self._put_row(row)
            if (count, total) != (len(self.pool), self._sum):
                self._read_all_gpus(connection)
            changed = True
        if endpoints != len(self.pool.compute_hosts):
            self._read_compute_hosts(connection)
            changed = True
        return changed

    def reload(self, connection: Connection) -> None:
        """Read all GPUs, hosts and compute hosts."""
        self._withhold(self._read_withheld_hosts(connection))
        self._read_all_gpus(connection)
        self._read_compute_hosts(connection)

    def read_utilisation(self, connection: Connection) -> None:
        """Read the utilisation of the GPUs, in whole percents, unless that was done within `READINGS_TTL`."""
        if self._readings_age is not None and not self._readings_age.expired():
            return
        rows = connection.execute(READINGS, {"since": timeutils.utcnow() - self._window})
        readings = {row.gpu_uuid: row.mean_utilisation for row in rows}
        for gpu in list(self.pool):
            percent = readings.get(gpu.uuid)
            utilisation = None if percent is None else float(round(percent))
            if utilisation != gpu.utilisation:
                self.pool.put(gpu.with_(utilisation=utilisation))
        self._readings_age = timeutils.StopWatch(READINGS_TTL).start()

    def confirms_host(self, connection: Connection, placement: Placement) -> bool:
        """Return whether there still is a compute host on which *placement* allows the VM.

        `refresh` compares the number of compute hosts only, so it does not notice if one was removed and another added.
        """
        wanted = (
            EndpointRow.host_name == placement.host
            if placement.host is not None
            else EndpointRow.host_name.not_in(placement.avoid)
        )
        return connection.scalar(COMPUTE_HOSTS.where(wanted).limit(1)) is not None

    def put(self, gpu: Gpu) -> None:
        """Store a GPU as it is in the database."""
        known = self.pool.get(gpu.uuid)
        if gpu == known:
            return
        self._sum += gpu.generation - (known.generation if known else 0)
        self.newest_generation = max(self.newest_generation, gpu.generation)
        self.pool.put(gpu)

    def _put_row(self, row: Row[*tuple[Any, ...]]) -> None:
        withheld: WithheldReason | None
        if row.disabled:
            withheld = WithheldReason.DISABLED
        elif row.withdrawn:
            withheld = WithheldReason.WITHDRAWN
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
            self._put_row(row)
        deleted = {gpu.uuid for gpu in self.pool} - {row.uuid for row in rows}
        for uuid in deleted:
            self._sum -= self.pool[uuid].generation
            self.pool.discard(uuid)

    def _read_compute_hosts(self, connection: Connection) -> None:
        self.pool.compute_hosts = connection.scalars(COMPUTE_HOSTS).all()

    def _read_withheld_hosts(self, connection: Connection) -> dict[str, WithheldReason]:
        rows = connection.execute(WITHHELD_HOSTS, self._seen_after())
        return {
            name: WithheldReason.HOST_DISABLED if disabled else WithheldReason.HOST_SILENT
            for name, disabled, seen_at, interval in rows
            if disabled or is_silent(seen_at, interval, self._heartbeat_timeout)
        }

    def _seen_after(self) -> dict[str, datetime.datetime]:
        timeout = datetime.timedelta(seconds=self._heartbeat_timeout)
        return {"seen_after": timeutils.utcnow() - timeout}

    def _withhold(self, hosts: dict[str, WithheldReason]) -> None:
        """Withhold the GPUs of these hosts, each for its reason, and no longer those of other hosts."""
        before, self._withheld_hosts = self._withheld_hosts, hosts
        for host in before.keys() | hosts.keys():
            if before.get(host) == hosts.get(host):
                continue
            for gpu in self.pool.on_host(host):
                if gpu.withheld not in GPU_REASONS:
                    self.pool.put(gpu.with_(withheld=hosts.get(host)))
