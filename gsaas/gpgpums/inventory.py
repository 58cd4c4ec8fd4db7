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

from oslo_utils import timeutils
from sqlalchemy import Row, bindparam, exists, func, or_, select
from sqlalchemy.orm import Session

from gsaas.db.models import Endpoint, Gpu, Host
from gsaas.gpgpums import state
from gsaas.gpgpums.pool import Pool
from gsaas.gpgpums.state import Placement, Withheld

SUMMARY = select(
    func.count(),
    func.coalesce(func.sum(Gpu.generation), 0),
    select(func.count()).select_from(Endpoint).scalar_subquery(),
).select_from(Gpu)

GPUS = select(
    Gpu.uuid,
    Gpu.host_name,
    Gpu.device_index,
    Gpu.memory_mb,
    Gpu.used_mb,
    Gpu.exclusive_lease_id,
    Gpu.generation,
    Gpu.disabled,
)

CHANGED_GPUS = GPUS.where(Gpu.generation >= bindparam("newest"))

WITHHELD_HOSTS = select(Host.name, Host.disabled).where(
    or_(
        Host.disabled.is_(True),
        Host.monitor_seen_at.is_(None),
        Host.monitor_seen_at < bindparam("seen_after"),
    ),
    exists().where(Gpu.host_name == Host.name),
)

COMPUTE_HOSTS = select(Endpoint.host_name)


class Inventory:
    """A `Pool` and how far it follows the database. Not thread-safe.

    *heartbeat_timeout* is how long a GPU host's monitor may be silent before its GPUs are
    withheld, in seconds.
    """

    def __init__(self, heartbeat_timeout: float) -> None:
        self.pool = Pool()
        self.newest = 0
        """The largest generation seen."""
        self._heartbeat_timeout = datetime.timedelta(seconds=heartbeat_timeout)
        self._sum = 0
        self._withheld_hosts: dict[str, Withheld] = {}

    def refresh(self, session: Session) -> bool:
        """Take over what changed, if anything did; return whether."""
        count, total, endpoints = map(int, session.execute(SUMMARY).one())
        withheld = self._read_withheld_hosts(session)
        changed = False
        if withheld != self._withheld_hosts:
            self._withhold(withheld)
            changed = True
        if (count, total) != (len(self.pool), self._sum):
            for row in session.execute(CHANGED_GPUS, {"newest": self.newest}):
                self._take_over(row)
            if (count, total) != (len(self.pool), self._sum):
                self._read_all_gpus(session)
            changed = True
        if endpoints != len(self.pool.compute_hosts):
            self._read_compute_hosts(session)
            changed = True
        return changed

    def reload(self, session: Session) -> None:
        """Read everything."""
        self._withhold(self._read_withheld_hosts(session))
        self._read_all_gpus(session)
        self._read_compute_hosts(session)

    def confirms_host(self, session: Session, placement: Placement) -> bool:
        """Is there still a compute host where *placement* wants the VM?

        One that left while another came does not show in their number.
        """
        wanted = (
            Endpoint.host_name == placement.host
            if placement.host is not None
            else Endpoint.host_name.not_in(placement.avoid)
        )
        return session.scalar(COMPUTE_HOSTS.where(wanted).limit(1)) is not None

    def put(self, gpu: state.Gpu) -> None:
        """Take over a GPU as it is in the database."""
        known = self.pool.get(gpu.uuid)
        if gpu == known:
            return
        self._sum += gpu.generation - (known.generation if known else 0)
        self.newest = max(self.newest, gpu.generation)
        self.pool.put(gpu)

    def _take_over(self, row: Row) -> None:
        withheld = Withheld.DISABLED if row.disabled else self._withheld_hosts.get(row.host_name)
        self.put(
            state.Gpu(
                row.uuid,
                row.host_name,
                row.device_index,
                row.memory_mb,
                row.used_mb,
                row.exclusive_lease_id is not None,
                row.generation,
                withheld,
            )
        )

    def _read_all_gpus(self, session: Session) -> None:
        rows = session.execute(GPUS).all()
        for row in rows:
            self._take_over(row)
        gone = {gpu.uuid for gpu in self.pool} - {row.uuid for row in rows}
        for uuid in gone:
            self._sum -= self.pool.get(uuid).generation
            self.pool.discard(uuid)

    def _read_compute_hosts(self, session: Session) -> None:
        self.pool.compute_hosts = session.scalars(COMPUTE_HOSTS).all()

    def _read_withheld_hosts(self, session: Session) -> dict[str, Withheld]:
        seen_after = timeutils.utcnow() - self._heartbeat_timeout
        rows = session.execute(WITHHELD_HOSTS, {"seen_after": seen_after})
        return {
            name: Withheld.HOST_DISABLED if disabled else Withheld.HOST_SILENT
            for name, disabled in rows
        }

    def _withhold(self, hosts: dict[str, Withheld]) -> None:
        before, self._withheld_hosts = self._withheld_hosts, hosts
        for host in before.keys() | hosts.keys():
            if before.get(host) == hosts.get(host):
                continue
            for gpu in self.pool.on_host(host):
                if gpu.withheld is not Withheld.DISABLED:
                    self.pool.put(gpu.with_(withheld=hosts.get(host)))
