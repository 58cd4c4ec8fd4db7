# SPDX-License-Identifier: Apache-2.0
"""Takes the steps that repair differences, by the ways by which GSaaS changes the same things otherwise.

Each step looks again, in the transaction that changes something or numbers an order, whether it is still to be taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sqlalchemy import Connection

from gsaas import exceptions, rpc
from gsaas.cloud.base import Cloud
from gsaas.db import clock, hosts, leases, orphans, recount
from gsaas.db.database import Database, retried
from gsaas.engine import real_addresses
from gsaas.engine.agents import Agents
from gsaas.engine.gpu_hosts import GpuHosts
from gsaas.objects.binding import Binding, LocalBinding, binding_of
from gsaas.objects.lifecycle import Status
from gsaas.rpc.hosts import AgentCallFailed
from gsaas.verify.rules import Act, Difference, Step

LOST = "which the database does not contain any more"


class Repairs:
    """Takes steps. *reconcile* has an engine reconcile a lease."""

    def __init__(
        self, database: Database, cloud: Cloud, agents: Agents, reconcile: Callable[[str], None]
    ) -> None:
        self._database = database
        self._change = database.change
        self._cloud = cloud
        self._agents = agents
        self._gpu_hosts = GpuHosts(database, agents.monitors)
        self._reconcile = reconcile

    def carry_out(self, found: Iterable[Difference]) -> Iterator[tuple[Difference, str | None]]:
        """Repair each difference; yield it with why that failed, None if it did not. One step is taken once.

        A difference without a step is yielded with what the operator has to do.
        """
        outcomes: dict[Step, str | None] = {}
        for difference in found:
            step = difference.step
            if step is None:
                yield difference, difference.by_hand
                continue
            if step not in outcomes:
                outcomes[step] = self._try(step)
            yield difference, outcomes[step]

    def _try(self, step: Step) -> str | None:
        try:
            self.take(step)
        except (exceptions.GsaasError, AgentCallFailed, rpc.BusError) as error:
            return str(error)
        return None

    def take(self, step: Step) -> None:
        """Take one step. Raises `AgentCallFailed`, `GsaasError`, and what the database raises."""
        agents, what, where = self._agents, step.what, step.where
        match step.act:
            case Act.RECOUNT:
                self._change(lambda connection: recount.recount(connection, what))
            case Act.DELETE_CLAIMS:
                self._change(lambda connection: orphans.delete_claims(connection, what))
            case Act.FREE_SHARES:
                self._change(lambda connection: orphans.free_shares(connection, what))
            case Act.END_USAGE:
                self._change(lambda connection: _end_usage(connection, what))
            case Act.FAIL_LEASE:
                self._change(lambda connection: _fail(connection, what))
                self._reconcile(what)
            case Act.RECONCILE:
                self._reconcile(what)
            case Act.ORDER_BINDING:
                self._order_binding(where, what)
            case Act.REMOVE_BINDING:
                if serial := self._number_removal(where, what):
                    agents.endpoint.remove(where, what, serial)
            case Act.AUDIT_ENDPOINT:
                agents.endpoint.audit(what, repair=True)
            case Act.UPDATE_GPU_HOST:
                self._gpu_hosts.reconcile(what)
            case Act.SET_TAG:
                self._cloud.set_tag(where, what)
            case Act.REMOVE_TAG:
                self._cloud.remove_tag(where, what)

    def _order_binding(self, host: str, lease_id: str) -> None:
        ordered = self._number_binding(host, lease_id)
        if ordered is None:
            return
        try:
            self._agents.endpoint.apply(host, *ordered)
        except AgentCallFailed:
            # An engine may have moved the lease on meanwhile: its order is newer, and right.
            if self._number_binding(host, lease_id) is not None:
                raise

    @retried
    def _number_binding(
        self, host: str, lease_id: str
    ) -> tuple[Binding | LocalBinding, int] | None:
        """Return the binding of a lease and the serial of its order; None if it is not to be on *host* any more.

        As for the engine's orders, the serial is of the transaction that reads the lease: if it moves on at this
        moment, the engine's order has a larger one, and the endpoint refuses this.
        """
        with self._database.write() as session:
            serial = hosts.next_serial(session, host)
            lease = leases.get(session.connection(), lease_id)
        if lease.status != Status.ACTIVE or lease.bound_host != host:
            return None
        binding = binding_of(lease)
        if refusal := real_addresses.binding_refusal(self._agents.gpu_network, lease, binding):
            raise AgentCallFailed(f"the binding is not sent to {host}: {refusal}")
        return binding, serial

    @retried
    def _number_removal(self, host: str, port_id: str) -> int:
        """Return the serial of an order to remove a binding; 0 if a lease has it by now."""
        with self._database.write() as session:
            serial = hosts.next_serial(session, host)
            bound = leases.bindings_on(session.connection(), host)
        return 0 if port_id in {port for _, port, _ in bound} else serial


def _end_usage(connection: Connection, lease_id: str) -> None:
    lease = leases.lock(connection, lease_id)
    if lease.status == Status.ERROR and not lease.claims and lease.released_at is None:
        leases.write(connection, lease.with_(released_at=lease.updated_at), "released_at")


def _fail(connection: Connection, lease_id: str) -> None:
    lease = leases.lock(connection, lease_id)
    lost = lease.count - len(lease.claims)
    if lease.status == Status.ACTIVE and lost > 0:
        hosts.fail_without_gpus(connection, lease, lost, LOST, servers_stay=True)
        if not lease.claims:  # none are left whose return would end its usage
            leases.update(connection, lease_id, released_at=clock.now(connection))
