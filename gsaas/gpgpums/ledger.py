# SPDX-License-Identifier: Apache-2.0
"""The ledger: it writes changes of the books (`gsaas.gpgpums.changes`), each completely or not at all.

1. Changes are committed in one transaction, which locks rows in one order: projects, the row of placings, reservations,
   leases, the shares of reservations that leases have, GPUs. Where several are locked, they are in the order of their
   keys.
2. The transaction reads which GPUs have changed, and plans its changes one after the other, each from the pool as those
   before it leave it. It then locks the GPUs of what was planned. A GPU that is not as it was planned with is now known
   as it is: the changes that it concerns are planned again, up to `ROUNDS` times; a request then tries other GPUs.
   Everything is written at the end, and all values are absolute: nobody else can change a locked row.
3. A transaction with several changes waits for no row of a lease, a reservation or a GPU: it leaves out the changes
   whose rows others have locked. So nobody waits for the lock of another one's lease, and it does not matter in which
   order such transactions lock GPUs. A change that was left out is committed later, or *patiently*: alone, by a
   transaction that waits for its rows.
4. A patient claim locks a row first that all patient claims know. Without that, many claims that all choose the
   emptiest GPU could overtake each other without end.
5. No request is refused on old data. A refusal is based on what its own transaction has read, with all GPUs that there
   are: else the claim is left out.
6. Daemons of single cGPUs get their ports in the same transaction. A unique index allows each port once per host; a
   transaction that chose the same port as another one was overtaken by it.
7. Where a project has a quota, its claims and reservations lock the project's row, and its usage is counted in the same
   transaction. So concurrent ones cannot exceed the quota together.
8. A deadlock or a lock timeout that the database reports all the same is a lost race like any other, and so is the
   conflict of two nodes of a Galera cluster, which do not know each other's locks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TypeVar

from oslo_db import exception as db_exception
from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.db import claims as claim_rows
from gsaas.db import leases, projects, request_keys
from gsaas.db import reservations as reservation_rows
from gsaas.db.database import Database
from gsaas.db.models import change_number
from gsaas.gpgpums.changes import Change, Claim, Serve
from gsaas.gpgpums.entries import (
    AdvanceQueue,
    Draft,
    Entry,
    LeftOutError,
    LockedRows,
    RowsNeededError,
)
from gsaas.gpgpums.mirror import Mirror, OutdatedPoolError
from gsaas.gpgpums.rules import Rules
from gsaas.gpgpums.view import Mixes, View
from gsaas.objects.gpu import Gpu
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import Status

ROUNDS = 4
"""How often a change may be planned in its transaction. Each time after the first one costs a statement more."""

Seen = TypeVar("Seen")

Outcome = Entry | Exception
"""The entry of a change, with its lease as it is stored, or why it has none."""


class _NothingToWriteError(Exception):
    """Nothing becomes of any change: the transaction is rolled back."""


class Ledger:
    """Commits changes to *database* by *rules*, with the GPUs of *mirror*; safe to share between threads."""

    def __init__(self, database: Database, mirror: Mirror, rules: Rules, mixes: Mixes) -> None:
        self.mirror = mirror
        self.rules = rules
        self.mixes = mixes
        self._database = database

    @property
    def can_leave_out(self) -> bool:
        """Whether a transaction can leave out rows that others have locked; in SQLite nobody else has any.

        False before the first connection to MariaDB or MySQL, whose release it depends on.
        """
        return self._database.can_skip_locked or self._database.one_writer

    def commit(self, changes: Sequence[Change], *, patiently: bool = False) -> list[Outcome]:
        """Write *changes* in one transaction; return the outcome of each, in their order.

        The caller carries out the effects of the entries. A change that was left out has a `LeftOutError` for its
        outcome. *patiently* is for a single change, which waits for its rows. Raises `OvertakenError` and errors of
        oslo.db; then nothing is written.
        """
        if not any(change.chooses for change in changes):
            return self._commit(changes, patiently)
        return self.mirror.following(lambda: self._commit(changes, patiently))

    def look(self, see: Callable[[View], Seen]) -> Seen:
        """Return what *see* returns for a view of the books as they are now; it may be called several times."""

        def act() -> Seen:
            with self._database.reading() as connection, self.mirror.lock:
                self.mirror.refresh(connection)
                return see(View(connection, self.mirror, self.rules, self.mixes, LockedRows()))

        return self.mirror.following(act)

    def _commit(self, changes: Sequence[Change], patiently: bool) -> list[Outcome]:
        waits = patiently or not self.can_leave_out
        draft = Draft(len(changes))
        try:
            with self._database.writing() as connection:
                # It may have to wait for the number: it does so before it has locked anything.
                number = change_number(connection) if concerns_gpus(changes) else None
                draft.locked = _lock_rows(connection, changes, waits=waits)
                if patiently and isinstance(changes[0], Claim | Serve):
                    claim_rows.wait_for_claims(connection)
                self._plan(connection, changes, draft, waits=waits)
                if not draft.has_something_to_write:
                    raise _NothingToWriteError
                outcomes = _outcomes(draft, write(connection, draft))
        except _NothingToWriteError:
            return _outcomes(draft, {})
        except db_exception.DBError:
            # Perhaps another transaction has changed one of these first: nothing says which.
            with self.mirror.lock:
                self.mirror.pool.begin_elsewhere(draft.gpus)
            raise
        if number is not None:
            with self.mirror.lock:
                self.mirror.put_own(draft.gpus.values(), number)
        return outcomes

    def _plan(
        self, connection: Connection, changes: Sequence[Change], draft: Draft, *, waits: bool
    ) -> None:
        """Plan *changes*, and lock the GPUs that they change."""
        draft.settle(_repetitions(connection, changes))
        self._lock_claimed(connection, draft, waits=waits)
        view = View(connection, self.mirror, self.rules, self.mixes, draft.locked)
        for turn in range(ROUNDS):
            with self.mirror.lock if concerns_gpus(changes) else nullcontext():
                if turn == 0:
                    self._prepare(connection, changes, view)
                with view.planning(draft.barred, draft.entries):
                    for place in draft.pending:
                        draft.set(place, _planned(changes[place], view))
                known = {uuid: self.mirror.pool[uuid] for uuid in draft.unlocked}
            # Once it has some, it waits for no further ones: these might be earlier in the order.
            self._lock(connection, draft, known, waits=waits and not draft.locked.gpus)
            if not draft.pending:
                return

    def _prepare(self, connection: Connection, changes: Sequence[Change], view: View) -> None:
        """Bring the mirror up to date for *changes*; call it with the lock acquired."""
        if any(change.chooses for change in changes):
            self.mirror.refresh(connection)
        for change in changes:
            # A policy may have the mirror read how busy GPUs are: now, because nothing is to be undone in it yet.
            if isinstance(change, Claim):
                with suppress(exceptions.GsaasError):
                    view.policy(change.policy_name)

    def _lock(
        self, connection: Connection, draft: Draft, known: Mapping[str, Gpu], *, waits: bool
    ) -> None:
        """Lock GPUs; take back what was planned with those that others have locked, or that are not as *known*."""
        if not known:
            return
        rows = claim_rows.lock_gpus(connection, known, waits=waits)
        draft.locked.gpus.update((row.uuid, row.daemon_port) for row in rows)
        with self.mirror.lock:
            changed = [gpu for gpu in map(self.mirror.gpu, rows) if gpu != known[gpu.uuid]]
            lost = (known.keys() - {row.uuid for row in rows}) | {gpu.uuid for gpu in changed}
            self.mirror.pool.begin_elsewhere(lost)
            self.mirror.put(changed)
        if not waits:
            draft.barred |= lost
        draft.take_back(lost)

    def _lock_claimed(self, connection: Connection, draft: Draft, *, waits: bool) -> None:
        """Lock the GPUs that the locked leases have claims on; forget the leases for which that is not possible."""
        locked = draft.locked
        uuids = {claim.gpu_uuid for lease in locked.leases.values() for claim in lease.all_claims}
        uuids |= {share.gpu_uuid for shares in locked.shares.values() for share in shares}
        if not uuids:
            return
        rows = claim_rows.lock_gpus(connection, uuids, waits=waits)
        locked.gpus.update((row.uuid, row.daemon_port) for row in rows)
        locked.leases = {
            lease.id: lease
            for lease in locked.leases.values()
            if all(claim.gpu_uuid in locked.gpus for claim in lease.all_claims)
        }
        with self.mirror.lock:
            self.mirror.put(map(self.mirror.gpu, rows))


def concerns_gpus(changes: Sequence[Change]) -> bool:
    """Return whether one of *changes* looks at the pool or changes GPUs; the others keep no claim waiting."""
    return any(change.concerns_gpus for change in changes)


def _lock_rows(connection: Connection, changes: Sequence[Change], *, waits: bool) -> LockedRows:
    """Lock what is to be locked before *changes* are planned, but for GPUs."""
    rows, locked = [change.rows for change in changes], LockedRows()
    for project_id in sorted({row.project for row in rows if row.project}):
        projects.lock(connection, project_id)
        locked.projects.add(project_id)
    if any(row.placings for row in rows):
        # Next to last: whoever has this row locked waits for nobody, and a move, which has GPUs locked, waits for it.
        reservation_rows.begin_placing(connection)
    for reservation_id in sorted({row.reservation for row in rows if row.reservation}):
        with suppress(exceptions.NotFound):
            found = reservation_rows.get(connection, reservation_id, lock=True)
            locked.reservations[reservation_id] = found
    wanted = sorted({row.lease for row in rows if row.lease})
    if waits:
        found_leases = [leases.lock(connection, lease_id) for lease_id in wanted]
    else:
        found_leases = leases.lock_free(connection, wanted) if wanted else []
        # The shares of a reservation are waited for.
        found_leases = [lease for lease in found_leases if lease.reservation_id is None]
    for lease in found_leases:
        locked.leases[lease.id] = lease
        if lease.reservation_id is not None:
            locked.shares[lease.id] = reservation_rows.lock_shares_of(connection, lease.id)
    return locked


def _repetitions(connection: Connection, changes: Sequence[Change]) -> dict[int, Exception]:
    """Return the errors of changes that cannot be written beside the others, by their places.

    A second change of one lease has to see what has become of the first one. A claim whose request key belongs to
    another lease is refused with the error of the index, before the index would refuse the whole transaction.
    """
    if len(changes) == 1:
        return {}
    errors: dict[int, Exception] = {}
    keys = {
        place: change.lease.request_key
        for place, change in enumerate(changes)
        if isinstance(change, Claim) and change.lease.request_key is not None
    }
    used = request_keys.used(connection, {*keys.values()})
    seen = set[str]()
    for place, change in enumerate(changes):
        key = keys.get(place)
        if key in used:
            errors[place] = db_exception.DBDuplicateEntry()
            continue
        name = f"key {key}" if key is not None else change.rows.lease
        if name in seen:
            errors[place] = LeftOutError()
        elif name is not None:
            seen.add(name)
    return errors


def _planned(change: Change, view: View) -> Outcome:
    """Return the entry of a change, which *view* then shows, or why it has none."""
    try:
        entry = change.plan(view)
    except RowsNeededError as error:
        # Others have locked the row of a lease that the change has named.
        is_locked = error.lease_id == change.rows.lease
        return LeftOutError() if is_locked else error
    except (db_exception.DBError, OutdatedPoolError):
        raise  # the transaction can do nothing more, for any change
    except Exception as error:  # noqa: BLE001 - it is raised to its caller
        return error
    view.add(entry)
    return entry


def write(connection: Connection, draft: Draft) -> dict[str, Lease]:
    """Write the entries of *draft*, whose rows are locked, with one set of statements.

    Returns their leases as they are stored, by id. Raises `OvertakenError`.
    """
    entries, gpus = draft.entries, draft.gpus
    leases.insert_all(connection, [e.lease for e in entries if e.lease and e.before is None])
    changed = [
        (e.lease, leases.changed_columns(e.before, e.lease))
        for e in entries
        if e.lease and e.before
    ]
    stored = {lease.id: lease for lease in leases.write_all(connection, changed)}
    for entry in entries:
        _write_reservation(connection, entry)
    claiming = [stored.get(e.lease.id, e.lease) for e in entries if e.lease and e.claims]
    moving = [e.lease for e in entries if e.lease and e.rewrites_claims]
    holders = {one.gpu_uuid: lease.id for lease in claiming for one in lease.claims}
    new_holders = {one.gpu_uuid: lease.id for lease in moving for one in lease.all_claims}
    # After the leases, which the rows of GPUs refer to.
    claim_rows.write_gpus(
        connection,
        [
            (gpu, (holders | new_holders).get(uuid) if gpu.exclusive else None)
            for uuid, gpu in sorted(gpus.items())
        ],
    )
    without = [e.before.id for e in entries if e.before and (e.returns_claims or e.rewrites_claims)]
    claim_rows.delete(connection, without)
    leases.insert_claims(connection, *claiming, *moving)
    leases.record_events_of(connection, {e.lease.id: e.events for e in entries if e.lease})
    # Any other is read again when it is shown: its engine has to take steps first.
    usable = [lease for lease in claiming if lease.status == Status.ACTIVE]
    places = {uuid: (gpus[uuid].host, draft.locked.gpus[uuid]) for uuid in holders}
    located = leases.locate(connection, usable, places) if usable else []
    return stored | {lease.id: lease for lease in located}


def _write_reservation(connection: Connection, entry: Entry) -> None:
    """Write what *entry* says of a reservation, but for the GPUs."""
    before = entry.before
    if before is not None and before.reservation_id is not None and entry.returns_claims:
        reservation_rows.give_back(connection, before.id)
    written = entry.reservation
    if written is None:
        return
    if written.is_new:
        reservation_rows.store(connection, written.before)
        reservation_rows.forget_old(connection, written.before.project_id)
        return
    if written.status is not None:
        reservation_rows.set_status(connection, written.before, written.status)
    if written.moves:
        status = written.status or written.before.status
        reservation_rows.move(connection, written.before, status, written.moves)
        reservation_rows.confirm_placing(connection, written.placings)
    if written.kept:
        reservation_rows.keep(connection, written.before, written.kept)
    if written.taken and entry.lease is not None:
        reservation_rows.take(connection, written.before, written.taken, entry.lease.id)
    if written.is_over:
        reservation_rows.drop(connection, written.before)


def _outcomes(draft: Draft, stored: Mapping[str, Lease]) -> list[Outcome]:
    """Return the outcome of each change, with its lease as it is *stored*. One caller advances the queue for all."""
    found: list[Outcome] = []
    may_advance = True
    for one in draft.outcomes():
        if isinstance(one, Entry):
            lease = one.lease and stored.get(one.lease.id, one.lease)
            effects = [each for each in one.effects if may_advance or each != AdvanceQueue()]
            may_advance = may_advance and AdvanceQueue() not in effects
            found.append(replace(one, lease=lease, effects=effects))
        else:
            found.append(one)
    return found
