# SPDX-License-Identifier: Apache-2.0
"""Serves the topic of the engine on the message bus. Every argument of a message is validated.

Agents announce themselves and report; the engine answers with their desired state. Where a report does not agree with
the database, both sides are corrected: leases whose bindings an endpoint lacks are requeued, and bindings that belong
to no lease are removed.
"""

from __future__ import annotations

import ipaddress
import itertools
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from sqlalchemy.orm import Session

from gsaas import exceptions, rpc
from gsaas.context import RequestContext
from gsaas.db import endpoints, gpus, hosts, leases, settings
from gsaas.db.database import Database, retried
from gsaas.engine import host_reports, readings, real_addresses
from gsaas.engine.agents import Agents
from gsaas.engine.callers import Callers
from gsaas.engine.corrections import Corrections
from gsaas.engine.gpu_hosts import GpuHosts
from gsaas.engine.reconciler import installed_bindings
from gsaas.grants import redemption
from gsaas.grants.keyring import Keyring
from gsaas.metrics import counted
from gsaas.notifications import cadf
from gsaas.notifications.cadf import SecurityEvent
from gsaas.objects import host_names, ids
from gsaas.objects.binding import OTHER_IPS, Binding, LocalBinding, binding_of
from gsaas.objects.daemon import DesiredState
from gsaas.objects.gpu_report import GpuReport
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import ENTITLED, Status
from gsaas.objects.received import LeftOut
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.host_log import HostLog
from gsaas.rpc.hosts import AgentCallFailed

LOG = logging.getLogger(__name__)

HANDLERS = 16
"""Messages that an engine handles at once, unless `executor_thread_pool_size` says otherwise.

One waits for the database while others compute. With oslo.messaging's own 64, a thousand hosts that report at once made
each message cost twice the CPU time: so many threads wait for Python's lock, and look for it again and again.
"""
MOST_CORRECTIONS = HANDLERS // 2
"""Of these, corrections of hosts, which wait for an agent's answer; the others go on with reports and launches."""

_MOST_ASKED_FOR = 10
"""Leases of one report whose servers are looked up because of what their VMs send: a tenant decides on that."""
_LONGEST_ID, _LONGEST_GRANT, _LONGEST_ADDRESS = 255, 4096, 15
"""Characters."""

_FROM_AGENTS = {
    **dict.fromkeys(("endpoint_started", "endpoint_report"), rpc.RODVR),
    **dict.fromkeys(
        ("monitor_report", "daemons_started", "daemons_report", "grant_shown"), rpc.MONITOR
    ),
}
"""Method -> the agent that may call it, of the host that its argument `host` names."""


def may_send(sender: str, method: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether *sender*, an agent or the controllers, may call a method of `RpcEndpoint`."""
    if agent := _FROM_AGENTS.get(method):
        return sender == rpc.agent_name(agent, str(arguments.get("host")))
    return sender == rpc.CONTROLLERS


class RpcEndpoint:
    """Serves the calls of `gsaas.rpc.engine.EngineClient`.

    Its public methods are called by oslo.messaging with the arguments of messages. They raise `ValueError`, `TypeError`
    or `KeyError` for arguments that are not valid, and do not repeat these: oslo.messaging logs what is raised.
    """

    target = rpc.Target(version=EngineClient.VERSION)

    def __init__(
        self,
        database: Database,
        agents: Agents,
        requeue: Callable[[str], None],
        callers: Callers,
        *,
        advance_queue: Callable[[], None] = lambda: None,
        keyring: Keyring | None = None,
        audit: Callable[[SecurityEvent], None] = lambda _: None,
    ) -> None:
        """*requeue* adds a lease to the engine's work queue. *advance_queue* serves the leases that wait for GPUs: a
        host that reports may offer GPUs again. Without *keyring*, no grant can be redeemed. *audit* is called
        with each grant that is refused."""
        self._database = database
        self._agents = agents
        self._gpu_hosts = GpuHosts(database, agents.monitors)
        self._requeue = requeue
        self._callers = callers
        self._advance_queue = advance_queue
        self._keyring = keyring or Keyring()
        self._audit = audit
        self._corrections = Corrections(MOST_CORRECTIONS)
        self._log = HostLog(LOG)

    def lease_changed(self, context: RequestContext, lease_id: str) -> None:
        """Reconcile a lease now. The context of its caller is kept until its server is made."""
        _check_id(lease_id)
        self._callers.keep(lease_id, context)
        self._requeue(lease_id)

    def lease_left_queue(self, context: RequestContext, lease_id: str) -> None:
        """Reconcile a lease that has just left the queue.

        The message goes to every engine, because only one of them may have the context of the caller.
        """
        _check_id(lease_id)
        self._requeue(lease_id)

    def endpoint_started(self, context: RequestContext, host: str) -> dict[str, Any]:
        """Return every binding that the endpoint of *host* should have, and a serial.

        {"serial": number, "bindings": [`Binding.to_dict()` without `other_ips`], "other_ips": these, by port id};
        orders with a smaller serial are older than that.
        """
        _check_host(host)
        serial, entitled = self._register_endpoint(host)
        bindings = [(lease, binding_of(lease)) for lease in entitled]
        sent = [
            binding.to_dict() for lease, binding in bindings if self._may_be_sent(lease, binding)
        ]
        others = {
            binding["port_id"]: binding.pop(OTHER_IPS) for binding in sent if OTHER_IPS in binding
        }
        return {"serial": serial, "bindings": sent, OTHER_IPS: others}

    @retried
    def _register_endpoint(self, host: str) -> tuple[int, list[Lease]]:
        """Return a serial for the endpoint of *host*, which starts, and the leases that it should have bindings of."""
        with self._database.write() as session:
            endpoints.register(session, host, {"bindings": {}})  # until its first report
            serial = hosts.next_serial(session, host)
            bound = leases.bound_to(session.connection(), host)
        return serial, [lease for lease in bound if lease.status in ENTITLED]

    def _may_be_sent(self, lease: Lease, binding: Binding | LocalBinding) -> bool:
        refusal = real_addresses.binding_refusal(self._agents.gpu_network, lease, binding)
        if refusal:
            text = f"a binding is not sent: {refusal}"
            self._log.write(logging.ERROR, lease.bound_host or "", "binding", text)
        return refusal is None

    def endpoint_report(self, context: RequestContext, host: str, report: dict[str, Any]) -> None:
        """Store the report of an endpoint, and correct what does not agree with the database."""
        _check_host(host)
        left_out = LeftOut()
        report = host_reports.endpoint_report(report, left_out)
        traffic = report.pop("traffic", {})  # it is not what its host is asked for again
        reported = installed_bindings(report)
        self._note_left_out(host, "endpoint", left_out)
        bound, surplus, serial = self._store_endpoint_report(host, report, reported.keys())
        strangers = _sending_strangely(report)
        for lease_id, port_id, status in bound:
            # One that the kernel refuses is sent again by those who wait for it. If each report had it sent again,
            # engine and endpoint would do nothing else, for an endpoint reports after each order.
            is_there = port_id is not None and reported.get(port_id, False)
            moves = status != Status.ACTIVE and is_there
            if moves or port_id not in reported or port_id in strangers:
                self._requeue(lease_id)
        if traffic:
            readings.store_traffic(self._database, report, traffic, bound)
        with self._corrections.of(host, "bindings") as may_begin:
            if may_begin:
                self._remove(host, surplus, serial)

    @retried
    def _store_endpoint_report(
        self, host: str, report: dict[str, Any], reported: Collection[str]
    ) -> tuple[list[tuple[str, str | None, str]], set[str], int]:
        """Store the report of an endpoint with bindings of the ports *reported*.

        Returns the leases that are bound to its host (`leases.bindings_on`), the ports among *reported* that belong to
        none of them, and the serial of the order to remove these, 0 if there are none.
        """
        with self._database.write() as session:
            believed = self._without_refused_address(session, host, report)
            endpoints.register(session, host, believed)
            if believed != report:
                real_addresses.forget_refused(session, self._agents.gpu_network, host)
            bound = leases.bindings_on(session.connection(), host)
            surplus = set(reported) - {port_id for _, port_id, _ in bound}
            serial = hosts.next_serial(session, host) if surplus else 0
        return bound, surplus, serial

    def _remove(self, host: str, port_ids: Collection[str], serial: int) -> None:
        """Remove the bindings of ports that belong to no lease."""
        for port_id in sorted(port_ids):
            text = f"the endpoint of {host} has a binding of port {port_id}, which belongs to no lease: removing it"
            self._log.write(logging.INFO, host, "surplus", text)
            try:
                self._agents.endpoint.remove(host, port_id, serial)
            except AgentCallFailed as error:
                self._log_failed_correction(host, error)

    def _log_failed_correction(self, host: str, error: AgentCallFailed) -> None:
        text = f"this is tried again at the next report of {host}: {error}"
        self._log.write(logging.WARNING, host, "correction", text)

    def _without_refused_address(
        self, session: Session, host: str, report: dict[str, Any]
    ) -> dict[str, Any]:
        """Return *report*; if its address is not believed, without that and with a problem."""
        address = report.get("gpu_address")
        refusal = address and real_addresses.report_refusal(
            session, self._agents.gpu_network, host, address
        )
        if not refusal:
            return report
        return {**report, "gpu_address": None, "problems": [*report.get("problems", []), refusal]}

    def monitor_report(
        self, context: RequestContext, host: str, report: dict[str, Any]
    ) -> dict[str, Any]:
        """Store the report of a monitor on its GPUs, which is its heartbeat too; return the settings of the monitor."""
        _check_host(host)
        gpu_report = GpuReport.from_dict(report)
        self._note_left_out(host, "gpus", gpu_report.left_out)
        news, refused, interval = self._store_monitor_report(host, gpu_report)
        if news:
            self._advance_queue()
        if gpu_report.loads is not None and not refused:
            readings.store_loads(self._database, host, gpu_report.loads)
        return {"monitor_interval": interval}

    @retried
    def _store_monitor_report(
        self, host: str, gpu_report: GpuReport
    ) -> tuple[bool, bool, float | None]:
        """Store the report of a monitor.

        Returns whether GPUs may be offered that were not before, whether its address was refused, and the interval of
        its reports that an operator has set.
        """
        snapshot, address = gpu_report.snapshot, gpu_report.gpu_address
        with self._database.write() as session:
            # Without a known address its GPUs cannot be used. Like GPUs that cannot be read, they keep their leases.
            refusal = real_addresses.report_refusal(
                session, self._agents.gpu_network, host, address
            )
            news = gpus.register(
                session,
                host,
                None if refusal else address,
                [] if refusal else snapshot.gpus,
                readings=snapshot.readings,
                interval=gpu_report.interval,
                blind=refusal or snapshot.unavailable,
                problems=[*snapshot.problems, *([refusal] if refusal else [])],
            )
            if refusal:  # after its GPUs were withdrawn, so that no lease begins to use them
                real_addresses.forget_refused(session, self._agents.gpu_network, host)
            interval = settings.get(session, settings.MONITOR_INTERVAL)
        return bool(news), refusal is not None, interval

    def _note_left_out(self, host: str, report: str, left_out: LeftOut) -> None:
        """Count and log what was left out of a report."""
        for told in left_out.told():
            counted.report_values_left_out(report, left_out.count)
            self._log.write(logging.WARNING, host, report, f"{host}, {report}: {told}")

    def daemons_started(self, context: RequestContext, host: str) -> dict[str, Any]:
        """Return the desired state of the GPU host *host*, as `DesiredState.to_dict()`."""
        _check_host(host)
        state: DesiredState = self._gpu_hosts.next_desired_state(host)
        return state.to_dict()

    def daemons_report(self, context: RequestContext, host: str, report: dict[str, Any]) -> None:
        """Store the report of a GPU host on its daemons and its fence, and correct what is not as desired."""
        _check_host(host)
        left_out = LeftOut()
        report = host_reports.gpu_host_report(report, left_out)
        self._note_left_out(host, "daemons", left_out)
        handled = self._gpu_hosts.handle_report(host, report)
        for lease_id in handled.waiting:
            self._requeue(lease_id)
        if handled.in_sync:
            return
        with self._corrections.of(host, "daemons") as may_begin:
            if not may_begin:
                return
            try:
                self._gpu_hosts.reconcile(host)
            except AgentCallFailed as error:
                self._log_failed_correction(host, error)

    def grant_shown(
        self, context: RequestContext, host: str, key: str, address: str, lease_id: str
    ) -> dict[str, str | None]:
        """Redeem a grant that was presented at the gate of *host*, and have the fences admit its address.

        Returns the code and the message of a refusal; both are None if the grant was redeemed.
        """
        _check_host(host)
        _check_text(lease_id, _LONGEST_ID)
        _check_text(key, _LONGEST_GRANT)
        _check_text(address, _LONGEST_ADDRESS)
        shown = redemption.PresentedGrant(
            key, str(ipaddress.IPv4Address(address)), lease_id, gate_of=host
        )
        try:
            redemption.redeem(self._database, self._keyring, shown)
        except exceptions.GrantRefused as refusal:
            self._audit(
                SecurityEvent(
                    event_type=cadf.GRANT,
                    action="authenticate",
                    succeeded=False,
                    code=refusal.code,
                    address=shown.address,
                    target_type=cadf.LEASE,
                    target_id=lease_id,
                )
            )
            return {"code": refusal.code, "refusal": str(refusal)}
        self._open_fences(lease_id)
        return {"code": None, "refusal": None}

    def _open_fences(self, lease_id: str) -> None:
        """Update the GPU hosts of a lease now, so that the fences admit its consumer's first connection."""
        with self._database.reading() as connection:
            lease = leases.get(connection, lease_id)
        hosts = {claim.gpu.host_name for claim in lease.claims}
        for host in sorted(hosts):
            try:
                self._gpu_hosts.reconcile(host)
            except AgentCallFailed as error:
                self._log_failed_correction(host, error)

    def monitor_interval_changed(self, context: RequestContext) -> None:
        """Send all monitors the interval of their reports."""
        with self._database.read() as session:
            seconds = settings.get(session, settings.MONITOR_INTERVAL)
            names = hosts.with_monitor(session)
        self._agents.monitors.report_every(names, seconds)


def _check_host(host: object) -> None:
    if not host_names.is_valid(host):
        raise ValueError(f"the name of the sender is not a host name: {host_names.RULE}")


def _check_id(text: object) -> None:
    if not ids.is_id(text):
        raise ValueError("an argument is not the id of a lease")


def _check_text(text: object, longest: int) -> None:
    if not (isinstance(text, str) and 0 < len(text) <= longest):
        raise ValueError(f"an argument is not a text of 1 to {longest} characters")


def _sending_strangely(report: Mapping[str, Any]) -> set[str]:
    """Return a few of the ports whose VMs send from addresses that they do not have, as far as their endpoint knows.

    The cloud may have given them these meanwhile, and says so only when it is asked.
    """
    found = (port for port, refused in report.get("refusals", {}).items() if refused.get("foreign"))
    return set(itertools.islice(found, _MOST_ASKED_FOR))
