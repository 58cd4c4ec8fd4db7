# SPDX-License-Identifier: Apache-2.0
"""The pool as the database has it: a copy in memory, brought up to date by reading only what has changed, and its lock.

1. Each GPU's row has the number of its last change. The copy remembers which numbers it has seen, and `refresh` reads
   the rows with others: one statement, so one snapshot, whose cost is that of the changes.
   `gsaas.objects.change_numbers` says why no change is missed, in whichever order transactions commit.
2. What no number of a GPU shows is rare: a GPU is deleted, a host disabled, an endpoint added. Each of these renews a
   version (`gsaas.db.pool_versions`), which the same statement reads.
3. Silence of a monitor is no change of any row. The statement counts the monitors that were not heard for long, at one
   end of an index, and says when the last of them was heard. Which they are is read when one of the two changes, and
   every `SILENCE_TTL` seconds.
4. All GPUs are read at the start, after a GPU was deleted, before a refusal if that was long ago, and when there are
   many new writers: then the copy remembers those only that rows have. That is done without the lock, because it takes
   long; what `refresh` has found meanwhile is kept.
5. The copy may be out of date once a statement has ended. The ledger compares it with the rows that it has locked.
6. The lock is held while a thread refreshes and chooses, never while it waits for a row or for a commit. So the pool
   shows what is committed to whoever has the lock.
"""

from __future__ import annotations

import datetime
import functools
import random
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from oslo_utils import timeutils
from sqlalchemy import Connection, Select, and_, bindparam, exists, func, or_, select

from gsaas.db import clock, queue
from gsaas.db.claims import POOL_COLUMNS
from gsaas.db.database import Database
from gsaas.db.hosts import is_silent
from gsaas.db.models import (
    EndpointRow,
    GpuReadingRow,
    GpuRow,
    HostRow,
    PoolVersionRow,
    SettingRow,
    table_of,
)
from gsaas.db.settings import DEFAULT_POLICY
from gsaas.gpgpums.equal_order import EqualOrder
from gsaas.gpgpums.pool import Pool
from gsaas.metrics import counted
from gsaas.objects.change_numbers import END, SeenChanges
from gsaas.objects.gpu import Gpu, WithheldReason, parse_capability

_GPUS = table_of(GpuRow)

WITHHELD_HOSTS = select(
    HostRow.name, HostRow.disabled, HostRow.monitor_seen_at, HostRow.monitor_interval
).where(
    or_(
        HostRow.disabled.is_(True),
        HostRow.monitor_seen_at < bindparam("seen_after"),
        and_(HostRow.monitor_seen_at.is_(None), exists().where(_GPUS.c.host_name == HostRow.name)),
    )
)

STATE = select(
    *(
        select(column).scalar_subquery().label(f"{column.key}_version")
        for column in (PoolVersionRow.gpus, PoolVersionRow.hosts, PoolVersionRow.endpoints)
    ),
    select(func.count())
    .select_from(HostRow)
    .where(HostRow.monitor_seen_at < bindparam("seen_after"))
    .scalar_subquery()
    .label("silent"),
    select(func.max(HostRow.monitor_seen_at))
    .where(HostRow.monitor_seen_at < bindparam("seen_after"))
    .scalar_subquery()
    .label("last_heard"),
    queue.TOP_PRIORITY.scalar_subquery().label("top_priority"),
    select(SettingRow.value)
    .where(SettingRow.name == DEFAULT_POLICY)
    .scalar_subquery()
    .label("default_policy"),
)

_FIRST_GPU_COLUMN = len(STATE.selected_columns)

GPUS = select(*POOL_COLUMNS)


@functools.cache
def _refresh(intervals: int) -> Select[Any]:
    """Return the statement that reads the state, beside it the GPUs whose numbers are in one of *intervals* intervals.

    It returns one row at least.
    """
    state = STATE.subquery("state")
    number = _GPUS.c.change_number
    unseen = or_(
        *(
            and_(number > bindparam(f"after{place}"), number < bindparam(f"before{place}"))
            for place in range(intervals)
        )
    )
    return select(*state.c, *POOL_COLUMNS).select_from(state.outerjoin(_GPUS, unseen))


GPU_REASONS = (WithheldReason.DISABLED, WithheldReason.WITHDRAWN)
"""Reasons that concern a GPU itself, and go before those of its host."""

READINGS = select(GpuReadingRow.gpu_uuid, GpuReadingRow.mean_utilisation).where(
    GpuReadingRow.at >= bindparam("since")
)

READINGS_TTL = 5.0
"""Seconds for which readings are not read again: monitors report less often."""

COMPUTE_HOSTS = select(EndpointRow.host_name)

SILENCE_TTL = 1.0
"""Seconds for which the hosts whose monitors are silent are not read again while `Silence` stays the same: one whose
monitor reports more rarely than others may fall silent later."""

FEW_WRITERS = 64
"""Writers that a copy may always remember; beyond these, twice as many as it found when it last read all GPUs."""

REFUSAL_TTL = 60.0
"""Seconds after which all GPUs are read again before a request is refused. The copy is right without that, unless rows
were changed by other means than GSaaS, or the database was restored from a backup."""


class OutdatedPoolError(Exception):
    """All GPUs have to be read again, which is not done with the lock acquired: see `Mirror.following`."""


Silence: TypeAlias = tuple[int, Any]
"""The number of monitors that were not heard for long, and when the last of them was heard. If one falls silent while
another is heard again, the number stays the same, and the time does not."""


@dataclass(frozen=True)
class Snapshot:
    """All GPUs and hosts as they were at one moment."""

    versions: tuple[int | None, ...]
    """Of the set of GPUs, of the disabled hosts, and of the endpoints."""
    silent: Silence
    withheld_hosts: dict[str, WithheldReason]
    compute_hosts: Collection[str]
    gpus: dict[str, Gpu]
    seen: SeenChanges


Done = TypeVar("Done")


class Mirror:
    """The pool of *database*. Methods that do not say otherwise are called with `lock` acquired.

    *heartbeat_timeout* is how long a GPU host's monitor may be silent before its GPUs are withheld, and
    *utilisation_window* how old a reading of a GPU's utilisation may be, in seconds. Of GPUs that a policy finds equal,
    this process begins at one of the first *subset_size*; on SQLite, where claims are made one after the other, at the
    first one.
    """

    def __init__(
        self,
        database: Database,
        heartbeat_timeout: float,
        utilisation_window: float = 300,
        subset_size: int = 1,
    ) -> None:
        self.lock = threading.Lock()
        self.one_writer = database.one_writer
        within = 1 if database.one_writer else subset_size
        self.pool = Pool(equal_order=EqualOrder(within, random.SystemRandom().randrange))
        self.newest_generation = 0
        """The largest generation of any GPU so far."""
        self.top_priority: int | None = None
        """The highest priority of the leases in the queue; None if the queue is empty."""
        self.default_policy: Any = None
        """The default policy that an administrator has set; None if none has."""
        self._database = database
        self._is_outdated = True
        """All GPUs have to be read again."""
        self._reading = threading.Lock()
        """Held by the thread that reads all GPUs."""
        self._window = datetime.timedelta(seconds=utilisation_window)
        self._readings_age: timeutils.StopWatch | None = None
        self._heartbeat_timeout = heartbeat_timeout
        self._age = timeutils.StopWatch(REFUSAL_TTL)
        self._seen = SeenChanges()
        self._most_writers = FEW_WRITERS
        self._versions: tuple[int | None, ...] = ()
        self._silent: Silence = (0, None)
        self._silence_age = timeutils.StopWatch(SILENCE_TTL)
        self._withheld_hosts: dict[str, WithheldReason] = {}
        self._put_since: set[str] | None = None
        """The GPUs that were put since all GPUs are being read; None while that is not so."""

    def following(self, act: Callable[[], Done]) -> Done:
        """Return what *act* returns, called *without* `lock`, after all GPUs were read if that is needed.

        *act* is called again if it finds that they have to be read again; its transaction is rolled back before.
        """
        while True:
            if self._is_outdated:
                self._read_all()
            try:
                return act()
            except OutdatedPoolError:
                self._is_outdated = True

    @property
    def may_refuse(self) -> bool:
        """Whether all GPUs were read lately."""
        return not self._age.expired()

    def refresh(self, connection: Connection) -> None:
        """Read what has changed.

        Raises `OutdatedPoolError` if a GPU was deleted, there are many new writers, or nothing was read before.

        Sets `top_priority` and `default_policy`, too.
        """
        rows = self._read_changes(connection)
        [first, *_] = rows
        versions, silent = tuple(first[:3]), _silence(first)
        self.top_priority, self.default_policy = first[5:_FIRST_GPU_COLUMN]
        outdated = not self._versions or versions[0] != self._versions[0]
        if outdated or len(self._seen) > self._most_writers:
            raise OutdatedPoolError
        if versions[1] != self._versions[1] or self._silence_changed(silent):
            self._withhold(self._read_withheld_hosts(connection))
            self._silent = silent
            self._silence_age.restart()
        if versions[2] != self._versions[2]:
            self.pool.compute_hosts = connection.scalars(COMPUTE_HOSTS).all()
        self._versions = versions
        if first[_FIRST_GPU_COLUMN] is not None:
            for row in rows:
                self.put([self.gpu(row[_FIRST_GPU_COLUMN:])])
                self._seen.see(row[-1])

    def put(self, gpus: Iterable[Gpu]) -> None:
        """Store GPUs as they are in the database."""
        for gpu in gpus:
            if self._put_since is not None:
                self._put_since.add(gpu.uuid)
            if gpu != self.pool.get(gpu.uuid):
                self.newest_generation = max(self.newest_generation, gpu.generation)
                self.pool.put(gpu)

    def put_own(self, gpus: Iterable[Gpu], number: int) -> None:
        """Store all GPUs that a transaction of this process has changed; *number* is its change number.

        One that has changed once more meanwhile stays as it is known.
        """
        for gpu in gpus:
            known = self.pool.get(gpu.uuid)
            if known is not None and known.generation < gpu.generation:
                # What no generation shows is as it is known by now.
                self.put([gpu.with_(withheld=known.withheld, utilisation=known.utilisation)])
        self._seen.see_own(number)

    def gpu(self, row: Sequence[Any]) -> Gpu:
        """Return the GPU of a row of `gsaas.db.claims.POOL_COLUMNS`."""
        return self._gpu(row, self._withheld_hosts)

    def read_utilisation(self, connection: Connection) -> None:
        """Read the utilisation of the GPUs, in whole percents, unless that was done within `READINGS_TTL`."""
        if self._readings_age is not None and not self._readings_age.expired():
            return
        rows = connection.execute(READINGS, {"since": clock.now(connection) - self._window})
        readings = {row.gpu_uuid: row.mean_utilisation for row in rows}
        for gpu in list(self.pool):
            percent = readings.get(gpu.uuid)
            utilisation = None if percent is None else float(round(percent))
            if utilisation != gpu.utilisation:
                self.pool.put(gpu.with_(utilisation=utilisation))
        self._readings_age = timeutils.StopWatch(READINGS_TTL).start()

    def _read_all(self) -> None:
        """Read all GPUs, *without* `lock`; threads that need them meanwhile wait."""
        with self._reading:
            if not self._is_outdated:
                return
            with self.lock:
                self._put_since = set()
            with self._database.reading() as connection:
                snapshot = self._read(connection)
            with self.lock:
                self._take_over(snapshot)

    def _read(self, connection: Connection) -> Snapshot:
        """Return all GPUs and hosts, all of them as of one moment; changes nothing, and needs no lock."""
        counted.full_read()
        state = connection.execute(STATE, self._seen_after(connection)).one()
        withheld = self._read_withheld_hosts(connection)
        compute_hosts = connection.scalars(COMPUTE_HOSTS).all()
        seen = SeenChanges()
        gpus = {}
        for row in connection.execute(GPUS):
            gpus[row[0]] = self._gpu(row, withheld)
            seen.see(row[-1])
        return Snapshot(tuple(state[:3]), _silence(state), withheld, compute_hosts, gpus, seen)

    def _take_over(self, snapshot: Snapshot) -> None:
        """Make this the copy that *snapshot* was read for; what was put since stays if it is newer."""
        newer = self._put_since or set()
        for uuid in [gpu.uuid for gpu in self.pool]:
            if uuid not in snapshot.gpus and uuid not in newer:
                self.pool.discard(uuid)
        self._withhold(snapshot.withheld_hosts)
        for uuid, gpu in snapshot.gpus.items():
            known = self.pool.get(uuid)
            if known is None or uuid not in newer or known.generation < gpu.generation:
                self.put([gpu])
        self._put_since = None
        # What was seen since is read again: that is little, and writers without rows are forgotten.
        self._seen = snapshot.seen
        self._most_writers = max(FEW_WRITERS, 2 * len(snapshot.seen))
        self._versions, self._silent = snapshot.versions, snapshot.silent
        self._silence_age.restart()
        self.pool.compute_hosts = snapshot.compute_hosts
        self.pool.number_slots()
        self._is_outdated = False
        self._age.restart()

    def _read_changes(self, connection: Connection) -> Sequence[Sequence[Any]]:
        unseen = self._seen.unseen()
        # Few different statements, so that SQLAlchemy has them compiled.
        length = len(unseen) if len(unseen) < 4 else 1 << (len(unseen) - 1).bit_length()
        values: dict[str, Any] = self._seen_after(connection)
        for place in range(length):
            after, before = unseen[place] if place < len(unseen) else (END, END)
            values[f"after{place}"], values[f"before{place}"] = after, before
        return connection.execute(_refresh(length), values).all()

    def _gpu(self, row: Sequence[Any], withheld_hosts: dict[str, WithheldReason]) -> Gpu:
        uuid, host, index, memory_mb, used_mb, holder, generation, disabled, withdrawn, *rest = row
        model, capability, leases, given, reserved_mb, *_ = rest
        withheld: WithheldReason | None
        if disabled:
            withheld = WithheldReason.DISABLED
        elif withdrawn:
            withheld = WithheldReason.WITHDRAWN
        else:
            withheld = withheld_hosts.get(host)
        known = self.pool.get(uuid)
        return Gpu(
            uuid,
            host,
            index,
            memory_mb,
            used_mb,
            holder is not None,
            generation,
            withheld,
            model,
            capability and _capability(capability),
            leases,
            given,
            known.utilisation if known else None,
            reserved_mb,
        )

    def _silence_changed(self, silent: Silence) -> bool:
        """Return whether other hosts may be silent than before."""
        return silent != self._silent or (silent[0] > 0 and self._silence_age.expired())

    def _read_withheld_hosts(self, connection: Connection) -> dict[str, WithheldReason]:
        now = clock.now(connection)
        rows = connection.execute(WITHHELD_HOSTS, self._seen_after(connection))
        return {
            name: WithheldReason.HOST_DISABLED if disabled else WithheldReason.HOST_SILENT
            for name, disabled, seen_at, interval in rows
            if disabled or is_silent(seen_at, interval, self._heartbeat_timeout, now)
        }

    def _seen_after(self, connection: Connection) -> dict[str, Any]:
        timeout = datetime.timedelta(seconds=self._heartbeat_timeout)
        return {"seen_after": clock.now(connection) - timeout}

    def _withhold(self, hosts: dict[str, WithheldReason]) -> None:
        """Withhold the GPUs of these hosts, each for its reason, and no longer those of other hosts."""
        before, self._withheld_hosts = self._withheld_hosts, hosts
        for host in before.keys() | hosts.keys():
            if before.get(host) == hosts.get(host):
                continue
            for gpu in self.pool.on_host(host):
                if gpu.withheld not in GPU_REASONS:
                    self.pool.put(gpu.with_(withheld=hosts.get(host)))


_capability = functools.cache(parse_capability)


def _silence(state: Sequence[Any]) -> Silence:
    return int(state[3]), state[4]
