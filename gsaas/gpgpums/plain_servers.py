# SPDX-License-Identifier: Apache-2.0
"""Claims GPUs for plain servers: those that their owners make with Nova, and whose properties ask for cGPUs.

1. What a server asks for, and whose it is, Nova is asked. Nothing of a notification or of a caller is believed.
2. A server gets a lease once. Each process may be the first to hear of a server, and several may be at the same time: a
   unique index lets one of them store the lease, and the others find it.
3. A refusal is stored, too, as a lease that is RELEASED with a fault, so that whoever looks later decides the same.
   A property that cannot be understood is not stored: there is no request to store.
4. Access rules are those of launches. The roles of a server's owner are known to who asks for vendor data; whoever else
   looks assumes those with which Nova's own rules let a user make a server.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence

from oslo_config import cfg
from oslo_db import exception as db_exception
from sqlalchemy import Connection

from gsaas import exceptions
from gsaas.cloud.base import Cloud
from gsaas.context import RequestContext
from gsaas.db import clock, leases
from gsaas.db.database import Database
from gsaas.db.stored_leases import StoredLeases
from gsaas.gpgpums.allocation import UNREACHABLE
from gsaas.gpgpums.changes import WaitPolicy
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.lease_end import NO_END, End, EndPolicy, of_plain_server
from gsaas.limits.base import Limits
from gsaas.metrics import counted
from gsaas.objects import plain_server
from gsaas.objects.lease import Lease
from gsaas.objects.lifecycle import LeaseEvent, Status
from gsaas.objects.plain_server import PlainServer
from gsaas.objects.request import ANY, Request
from gsaas.remoting.drivers import Drivers

LOG = logging.getLogger(__name__)

ASSUMED_ROLES = ("member", "reader")
"""The roles of an owner whose roles are not known: Nova's default rules demand them of who makes a server."""
STEP, REFUSE = "claim", "refuse"
"""The step in the fault of a refused lease, and its one event."""

_LONGEST_NAME = 255

MayLaunch = Callable[[RequestContext], bool]
"""Returns whether the access rules let a caller launch a lease in the project of the context."""

_BUSY = (exceptions.NoCapacity, exceptions.QuotaExceeded)
"""Refusals after which waiting may help."""
_FINAL = (
    *_BUSY,
    exceptions.NeverFits,
    exceptions.QueueFull,
    exceptions.TooManyLeases,
    exceptions.RemotingLimit,
)
"""Refusals that are stored. After any other error the next one who looks at the server tries again."""


class PlainServers:
    """Gives plain servers their leases. One per process; threads may share it.

    *from_metadata* is whether metadata may have properties, *wait* how a request waits that finds no GPUs (None: it
    does not), *min_share_mb* the smallest share, *may_launch* decides by the access rules, *drivers* are those of new
    leases, and *end* is that of these.
    """

    def __init__(
        self,
        database: Database,
        claims: Claims,
        cloud: Cloud,
        drivers: Drivers,
        *,
        quotas: Limits,
        stored: StoredLeases,
        may_launch: MayLaunch,
        from_metadata: bool,
        wait: WaitPolicy | None,
        end: End = NO_END,
        min_share_mb: int = 1,
    ) -> None:
        self._database = database
        self._claims = claims
        self._cloud = cloud
        self._drivers = drivers
        self._quotas = quotas
        self._stored = stored
        self._may_launch = may_launch
        self._from_metadata = from_metadata
        self._wait = wait
        self._end = end
        self._min_share_mb = min_share_mb

    @classmethod
    def from_conf(
        cls,
        conf: cfg.ConfigOpts,
        database: Database,
        claims: Claims,
        cloud: Cloud,
        drivers: Drivers,
        *,
        quotas: Limits,
        stored: StoredLeases,
        may_launch: MayLaunch,
    ) -> PlainServers | None:
        """Return what gives plain servers their leases as *conf* says; None if they get none."""
        options = conf.plain_servers
        if options.properties == "none":
            return None
        wait = None
        if options.no_gpu == "wait":
            wait = WaitPolicy(
                max_waiting=conf.queue.most_per_project, max_kb=conf.queue.most_kb_per_project
            )
        return cls(
            database,
            claims,
            cloud,
            drivers,
            quotas=quotas,
            stored=stored,
            may_launch=may_launch,
            from_metadata=options.properties == "all",
            wait=wait,
            end=of_plain_server(
                EndPolicy(conf.leases.longest_duration, conf.leases.default_duration)
            ),
            min_share_mb=conf.gpgpums.min_share_mb,
        )

    def equip(self, server_id: str, roles: Sequence[str] | None = None) -> Lease | None:
        """Return the lease of a plain server, which has claims, waits, was refused, or is over.

        Claims GPUs if the server has no lease yet. *roles* are those of its owner; None if they are not known. None if
        the server asks for no cGPUs, was made by GSaaS, or it is too early or not known enough to decide.

        Raises `BadRequest` for properties that cannot be understood, or a kind that this cloud does not serve,
        `Forbidden` if its owner may not launch leases, and `CloudUnavailable`, `ClaimConflict` and other errors after
        which a later call may succeed.
        """
        if (lease := self._find(server_id)) is not None:
            return lease if lease.plain_server_id is not None else None
        server = self._cloud.plain_server(server_id)
        if server is None or server.lease_id is not None or not server.is_usable:
            return None
        try:
            cgpus = plain_server.wanted(
                server.extra_specs, server.metadata, from_metadata=self._from_metadata
            )
            if cgpus is None:
                return None
            kind = {"kind": self._drivers.default_kind}
            request = Request.from_dict(kind | cgpus, server.host)
            request.check_share(self._min_share_mb)
        except ValueError as error:
            raise exceptions.BadRequest(reason=str(error)) from None
        if request.locality != ANY and server.host is None:
            return None  # Nova tells when it has chosen the host
        if not self._is_allowed(server, roles):
            return None
        try:
            return self._claim_once(server, request, cgpus.get("policy"))
        except (*_FINAL, exceptions.ClaimConflict, db_exception.DBDuplicateEntry):
            # Another process may have been faster, and have taken what this one was refused.
            if (lease := self._find(server_id)) is not None:
                return lease
            raise

    def _find(self, server_id: str) -> Lease | None:
        with self._database.reading() as connection:
            return leases.of_server(connection, server_id)

    def _is_allowed(self, server: PlainServer, roles: Sequence[str] | None) -> bool:
        """Return whether the owner of a server may launch leases; raise `Forbidden` if not, and *roles* are known."""
        owner = RequestContext.of(
            user_id=server.user_id,
            project_id=server.project_id,
            roles=list(ASSUMED_ROLES if roles is None else roles),
        )
        if self._may_launch(owner):
            return True
        if roles is None:
            LOG.info("server %s gets cGPUs only if its owner's roles allow it", server.id)
            return False
        raise exceptions.Forbidden(rule="gsaas:leases:create", roles=", ".join(roles) or "(none)")

    def _claim_once(self, server: PlainServer, request: Request, policy: str | None) -> Lease:
        """Return the new lease of a server, which may be a refused one."""
        lease = self._new_lease(server, request)
        try:
            with counted.refusals():
                lease = self._claim(lease, request, policy)
        except _FINAL as refusal:
            LOG.info("server %s gets no cGPUs: %s", server.id, refusal)
            if isinstance(refusal, exceptions.TooManyLeases):
                raise  # it would be one more
            return self._refuse(lease, str(refusal))
        if lease.queued_at is None and lease.policy is not None:
            counted.granted(lease.policy)
        LOG.info("server %s has lease %s, which is %s", server.id, lease.id, lease.status)
        return lease

    def _claim(self, lease: Lease, request: Request, policy: str | None) -> Lease:
        self._claims.masked.check(request.count)
        request = self._drivers.of(request.kind).adapt(request)
        lease = lease.with_(requirements=request.stored_requirements())
        self._stored.add(lease.project_id)
        quota = self._quotas.of(lease.project_id)
        try:
            return self._claims.claim(lease, request, policy, quota)
        except UNREACHABLE:
            raise  # some are sub-classes of those below, but waiting for GPUs would not help
        except _BUSY:
            if self._wait is None:
                raise
            return self._claims.queue.join(lease, request, policy, quota, self._wait)

    def _new_lease(self, server: PlainServer, request: Request) -> Lease:
        now = self._database.now()
        return Lease(
            id=str(uuid.uuid4()),
            project_id=server.project_id,
            user_id=server.user_id,
            name=_lease_name(server),
            status=Status.QUEUED,
            count=request.count,
            mode=request.mode,
            memory_mb=request.memory_mb,
            locality=request.locality,
            requirements=request.requirements(),
            remoting=self._drivers.of(request.kind).name,
            consumer_host=server.host,
            server_id=server.id,
            plain_server_id=server.id,
            duration=self._end.duration,
            created_at=now,
            updated_at=now,
        )

    def _refuse(self, lease: Lease, reason: str) -> Lease:
        """Store that a server gets no cGPUs, and why."""

        def store(connection: Connection) -> Lease:
            refused = lease.with_(
                status=Status.RELEASED,
                server_id=None,
                fault_step=STEP,
                fault_message=reason,
                released_at=clock.now(connection),
            )
            leases.insert(connection, refused)
            event = LeaseEvent(REFUSE, Status.RELEASED, reason)
            leases.record_events(connection, lease.id, [event])
            return refused

        return self._database.change(store)


def _lease_name(server: PlainServer) -> str:
    """Return the name of a server, or one made of its id if whoever prints it would be deceived."""
    name = server.name
    fits = name.isprintable() and 1 <= len(name) <= _LONGEST_NAME
    return name if fits else f"server-{server.id[:8]}"
