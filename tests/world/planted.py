# SPDX-License-Identifier: Apache-2.0
"""Bugs that worlds have to find: each puts a broken method into the place of a right one, in this process."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from oslo_db import exception as db_exception

from gsaas.api import auth, idempotency
from gsaas.api import leases as lease_handlers
from gsaas.cloud.base import Owner
from gsaas.db import claims, leases
from gsaas.db.database import Database
from gsaas.engine import desired_state, reconciler, steps
from gsaas.gpgpums import queue
from gsaas.gpgpums.ledger import Ledger
from gsaas.gpgpums.mirror import Mirror
from gsaas.gpgpums.view import View
from gsaas.gpu_host.daemons.service import DaemonService
from gsaas.limits import base
from gsaas.notifications.emitter import Notifications
from gsaas.objects.daemon import DesiredState
from gsaas.objects.lifecycle import Status
from gsaas.objects.move import Stage
from gsaas.objects.request import Request
from gsaas.rodvr.endpoint import Endpoint
from gsaas.rodvr.order_serials import OrderSerials
from gsaas.rpc.hosts import AgentCallFailed
from gsaas.rpc.rodvr import EndpointClient

BUGS: dict[str, Callable[[], None]] = {}


def bug(plant: Callable[[], None]) -> Callable[[], None]:
    BUGS[plant.__name__] = plant
    return plant


@bug
def a_lost_connection_counts_as_a_commit() -> None:
    """The answer is given although the commit may not have been stored."""
    change = Database.writing

    def writing(self: Database) -> Any:
        return _Swallowing(change(self))

    Database.writing = writing  # type: ignore[method-assign]


class _Swallowing:
    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> Any:
        return self._context.__enter__()

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        try:
            return self._context.__exit__(kind, error, traceback)
        except db_exception.DBConnectionError:
            if kind is None:
                return True
            raise


@bug
def claims_return_before_daemons_are_gone() -> None:
    """The engine does not wait until the GPU hosts confirm that the daemons of a lease are gone."""
    clean_up = steps._clean_up

    def hasty(lease: Any, observed: Any) -> Any:
        step = clean_up(lease, observed)
        if isinstance(step, steps.Wait) and "daemons are gone" in step.until and lease.claims:
            return steps.ReturnClaims()
        return step

    steps._clean_up = hasty


@bug
def claims_return_before_bindings_are_gone() -> None:
    """The engine takes a call of an endpoint that failed for a success."""
    remove = reconciler.LeaseReconciler._execute

    def execute(self: Any, lease: Any, step: Any, state: Any) -> None:
        try:
            remove(self, lease, step, state)
        except AgentCallFailed:
            if not isinstance(step, steps.RemoveBinding):
                raise
            self._update(lease, bound_host=None)

    reconciler.LeaseReconciler._execute = execute  # type: ignore[method-assign]


@bug
def late_orders_are_carried_out() -> None:
    """An endpoint installs a binding again that a newer order has removed."""
    OrderSerials.check = lambda *_: None  # type: ignore[method-assign]


@bug
def late_desired_states_are_applied() -> None:
    """A monitor applies a desired state that is older than the one it has."""
    apply = DaemonService.apply

    def anew(self: DaemonService, desired: Any) -> Any:
        self._synchronised.wait()
        with self._lock:
            self._desired = DesiredState(-1, self._desired.daemons, self._desired.admissions)
        return apply(self, desired)

    DaemonService.apply = anew  # type: ignore[method-assign]


@bug
def the_fence_opens_for_leases_that_end() -> None:
    """The desired state of a GPU host has leases that are RELEASING, too."""
    desired_state.ENTITLED = (*desired_state.ENTITLED, Status.RELEASING)


@bug
def claims_of_others_are_not_noticed() -> None:
    """A process claims GPUs as it remembers them, and does not compare their generations."""
    refresh = Mirror.refresh

    def once(self: Mirror, connection: Any) -> None:
        if not self._versions:
            refresh(self, connection)

    def unchecked(
        self: Ledger, connection: Any, draft: Any, known: Mapping[str, Any], *, waits: bool
    ) -> None:
        if known:
            rows = claims.lock_gpus(connection, known, waits=waits)
            draft.locked.gpus.update((row.uuid, row.daemon_port) for row in rows)

    Mirror.refresh = once  # type: ignore[method-assign]
    Ledger._lock = unchecked  # type: ignore[method-assign]


@bug
def a_returned_claim_is_lost() -> None:
    """A lease is over although the database has not stored the return of its claims."""
    execute = reconciler.LeaseReconciler._execute

    def hasty(self: Any, lease: Any, step: Any, state: Any) -> None:
        if not isinstance(step, steps.ReturnClaims):
            execute(self, lease, step, state)
            return
        with suppress(db_exception.DBError):
            execute(self, lease, step, state)
        if lease.status == Status.RELEASING:
            execute(self, lease, steps.Finish(), state)

    reconciler.LeaseReconciler._execute = hasty  # type: ignore[method-assign]


@bug
def a_repeated_launch_makes_another_lease() -> None:
    """The key of a launch is not stored."""
    idempotency.mark = lambda _, lease: lease


@bug
def a_second_server_is_made() -> None:
    """The engine takes every lease for one for which nobody has made a server yet."""

    def replace(value: Any, **changes: Any) -> Any:
        if isinstance(value, Owner):
            changes["untried"] = True
        return dataclasses.replace(value, **changes)

    reconciler.replace = replace  # type: ignore[assignment]


@bug
def the_queue_serves_the_newest_first() -> None:
    queue.QueuedRequest.sort_key = property(  # type: ignore[assignment]
        lambda self: (-self.priority, -self.queued_at.timestamp(), self.lease_id)
    )


@bug
def quotas_are_not_counted() -> None:
    """A claim may exceed the quota of its project."""
    base._exceeded = lambda *_: []


@bug
def removed_mappings_stay_in_the_kernel() -> None:
    """An endpoint says that a binding is gone before it is."""

    def remove(self: Any, port_id: str) -> Any:
        with self._lock:
            return self._report(())

    Endpoint.remove = remove  # type: ignore[method-assign]


@bug
def what_is_locked_is_not_compared() -> None:
    """A process writes what it has planned, although others changed the GPU until it had the lock."""

    def unchecked(
        self: Ledger, connection: Any, draft: Any, known: Mapping[str, Any], *, waits: bool
    ) -> None:
        if known:
            rows = claims.lock_gpus(connection, known, waits=waits)
            draft.locked.gpus.update((row.uuid, row.daemon_port) for row in rows)
            if not waits:
                lost = known.keys() - {row.uuid for row in rows}
                draft.barred |= lost
                draft.take_back(lost)

    Ledger._lock = unchecked  # type: ignore[method-assign]


@bug
def launches_pass_the_queue() -> None:
    """A request that fits is served at once, although others wait."""
    View._place_behind_queue = lambda self, request, policy, _: (  # type: ignore[method-assign]
        self.propose_ignoring_queue(request, policy)
    )


@bug
def what_fits_exactly_is_refused() -> None:
    """A GPU counts as too small for a request that needs all that is free of it."""
    Request.fits = lambda self, gpu: (  # type: ignore[method-assign]
        self.wants(gpu) and gpu.available(self.mode) > (self.memory_mb or 1)
    )


@bug
def a_removal_is_not_sent() -> None:
    """An engine records that a binding is gone, and has not asked the endpoint to remove it."""
    EndpointClient.remove = lambda *_: {}  # type: ignore[method-assign]


@bug
def ports_are_freed_while_bindings_lead_there() -> None:
    """An engine forgets the port of a daemon that has ended, although the endpoint has not removed the binding."""
    end = reconciler.LeaseReconciler._end_daemons

    def hasty(self: Any, lease: Any, claims: Any, state: Any, *, led_there: bool) -> None:
        end(self, lease, claims, state, led_there=False)

    reconciler.LeaseReconciler._end_daemons = hasty  # type: ignore[method-assign]


@bug
def a_move_leaves_the_binding_as_it_was() -> None:
    """The GPUs that cGPUs have left are returned although masked addresses lead there."""

    def remap(self: Any, lease: Any, host: str, state: Any) -> None:
        self._leave(lease, Stage.SWITCHED)

    reconciler.LeaseReconciler._remap = remap  # type: ignore[method-assign]


@bug
def an_owner_is_not_checked() -> None:
    """A lease is shown to the members of every project."""

    def find(request: Any, connection: Any, lease_id: str, rule: str) -> Any:
        return leases.get(connection, lease_id)

    lease_handlers.find = find
    lease_handlers._check_access = lambda *_: None


@bug
def a_token_is_logged() -> None:
    """A request whose token is valid is logged with it."""
    identify = auth.TokenFile.__call__

    def telling(self: Any, request: Any) -> Any:
        logging.getLogger("gsaas.api.auth").warning("a request with %s", request.headers)
        return identify(self, request)

    auth.TokenFile.__call__ = telling  # type: ignore[method-assign]


@bug
def a_change_is_notified_twice() -> None:
    """A notification is sent again if the commit was slow."""
    committed = Notifications.committed

    def twice(self: Any, happened: Any) -> None:
        committed(self, happened)
        if len(happened) > 1:
            committed(self, happened)

    Notifications.committed = twice  # type: ignore[method-assign]


_planted: set[str] = set()


def plant(name: str | None) -> None:
    """Plant a bug in this process, once."""
    if name is not None and name not in _planted:
        _planted.add(name)
        BUGS[name]()
