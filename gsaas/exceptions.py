# SPDX-License-Identifier: Apache-2.0
"""The errors that GSaaS reports to callers: each has a code that never changes, an HTTP status, and a sentence.

API clients match on `code`; `status` is the HTTP status of the answer. A subclass gives its sentence as `fmt`, a format
of named facts, and is raised with the facts as keywords, which `facts` keeps.
"""

from __future__ import annotations

from typing import Any


class GsaasError(Exception):
    """The base of all errors in this module; never raised itself."""

    code = "gsaas.internal"
    status = 500
    fmt = "internal error"

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        super().__init__(self.fmt % facts)


class BadRequest(GsaasError):
    """The request has something that GSaaS does not understand or allow; nothing was changed."""

    code = "gsaas.bad-request"
    status = 400
    fmt = "%(reason)s"


class UserDataTooLarge(BadRequest):
    """User data, the caller's and that of GSaaS together, is larger than Nova allows (65,535 bytes of base64)."""

    code = "gsaas.user-data.too-large"
    fmt = (
        "user data is %(size)d bytes after base64, but Nova allows at most %(limit)d; "
        "shorten yours by %(excess)d bytes, or have it download the rest at boot"
    )


class UnstorableText(BadRequest):
    """A text of the request has a character that the service's database cannot hold; the database refused it."""

    code = "gsaas.text.unstorable"
    fmt = (
        "a text of the request has a character that the database of this service cannot hold; "
        "leave out characters such as emoji, or ask your operator for a database with all of Unicode"
    )


class UnknownPolicy(BadRequest):
    """The request names a scheduling policy that is not installed."""

    code = "gsaas.policy.unknown"
    fmt = "there is no policy %(name)r; use one of %(known)s"


class PolicyNotAllowed(BadRequest):
    """The request names a scheduling policy that the operator does not let requests name."""

    code = "gsaas.policy.not-allowed"
    fmt = "requests may not name the policy %(name)r here; use one of %(allowed)s"


class IdempotencyKeyReused(GsaasError):
    """The caller has used the Idempotency-Key of this request for another one, less than a day ago."""

    code = "gsaas.idempotency-key.reused"
    status = 409
    fmt = (
        "this Idempotency-Key belongs to another request of yours, which made lease %(id)s; "
        "a new request needs a new key"
    )


class Unauthorized(GsaasError):
    """The request has no token, or one that is not valid."""

    code = "gsaas.unauthorized"
    status = 401
    fmt = "%(reason)s"


class Forbidden(GsaasError):
    """The caller is authenticated, but may not do this."""

    code = "gsaas.forbidden"
    status = 403
    fmt = "this needs the permission %(rule)s, which your roles (%(roles)s) do not give; ask your operator for it"


class NoProject(GsaasError):
    """The token is scoped to the whole cloud, to a domain, or not at all; leases belong to projects."""

    code = "gsaas.forbidden.no-project"
    status = 403
    fmt = "this needs a token for a project; yours is for %(scope)s"


class QuotaExceeded(GsaasError):
    """The project would exceed a quota that an operator has set."""

    code = "gsaas.quota.exceeded"
    status = 403
    fmt = "%(reason)s"


class IdentityUnavailable(GsaasError):
    """Keystone, which authenticates callers, does not answer."""

    code = "gsaas.identity.unavailable"
    status = 503
    fmt = "Keystone does not answer, so requests cannot be authenticated; try again later"


class NotFound(GsaasError):
    """There is no such object, or it is another project's: the answers are the same on purpose.

    The fact `foreign`, which no answer contains, says that it is another project's.
    """

    code = "gsaas.not-found"
    status = 404
    fmt = "there is no %(noun)s %(id)s"


class LeaseReleased(NotFound):
    """The lease has ended: nothing can be done with it any more."""

    code = "gsaas.lease.released"
    fmt = "lease %(id)s is released already"


class LeaseNotQueued(GsaasError):
    """The priority of a lease was to change that is not in the queue."""

    code = "gsaas.lease.not-queued"
    status = 409
    fmt = "lease %(id)s is %(status)s, and a priority has an effect in the queue only"


class EndInPast(BadRequest):
    """The lease would have ended already."""

    code = "gsaas.lease.end.in-past"
    fmt = "%(field)s would end the lease at %(at)s, and it is %(now)s now"


class EndMissing(BadRequest):
    """The operator wants each lease to have an end."""

    code = "gsaas.lease.end.missing"
    fmt = "lease.duration is needed: each lease ends here, after %(longest)s at most"


class EndTooLate(GsaasError):
    """The lease would last longer than the operator allows."""

    code = "gsaas.lease.end.too-late"
    status = 403
    fmt = (
        "the lease would last %(asked)s, and at most %(longest)s are allowed here: until %(latest)s"
    )


class EndIsOver(GsaasError):
    """The end of a lease was to change that is over, or that has failed."""

    code = "gsaas.lease.end.over"
    status = 409
    fmt = "lease %(id)s is %(status)s, so its end cannot be changed"


class EndReserved(GsaasError):
    """The lease would have GPUs at a time for which they are reserved."""

    code = "gsaas.lease.end.reserved"
    status = 409
    fmt = "the GPUs of lease %(id)s are reserved from %(start)s on: it can last until then"


class ReservationNotActive(GsaasError):
    """A lease was to be launched in a reservation that has not begun, or has ended."""

    code = "gsaas.reservation.not-active"
    status = 409
    fmt = "reservation %(id)s is %(status)s; leases are launched in it from %(start)s to %(end)s (UTC)"


class LeaseHasNoGpus(GsaasError):
    """The lease has no cGPUs yet, or no more, so that it has no environment."""

    code = "gsaas.lease.holds-nothing"
    status = 409
    fmt = "lease %(id)s is %(status)s and has no cGPUs, so it has no environment"


class LeaseNotMovable(GsaasError):
    """cGPUs of a lease cannot be moved, or not there."""

    code = "gsaas.lease.not-movable"
    status = 409
    fmt = "lease %(id)s cannot be moved: %(reason)s"


class LeaseConnected(GsaasError):
    """A move would cut open connections of programs, and the operator has not said that it may."""

    code = "gsaas.lease.connected"
    status = 409
    fmt = (
        "programs of lease %(id)s have %(connections)d open connections to its cGPUs, which a move would cut, and lose "
        "what they have there. Ask again when they have ended; or use force"
    )


class HostWithoutGpus(GsaasError):
    """An operator asks to drain a host that has no GPUs."""

    code = "gsaas.host.without-gpus"
    status = 409
    fmt = (
        "host %(name)s has no GPUs that leases could leave. VMs are Nova's to move: disable its nova-compute and "
        "migrate them; their leases go along"
    )


class HostAlive(GsaasError):
    """An operator asks to forget a host whose agents still report."""

    code = "gsaas.host.alive"
    status = 409
    fmt = (
        "host %(name)s reported %(ago)d s ago, so it still runs. Stop gsaas-monitor and gsaas-rodvr "
        "there and ask again in %(wait)d s; or use force, if the host has been switched off since"
    )


class GpuNotReported(GsaasError):
    """An operator consents to the move of a GPU to a host that does not report it."""

    code = "gsaas.gpu.not-reported"
    status = 409
    fmt = (
        "host %(host)s does not report GPU %(uuid)s, which %(owner)s has; start gsaas-monitor there, and ask again "
        "when gsaas hosts shows it as a problem of that host"
    )


class GpuInUse(GsaasError):
    """An operator consents to the move of a GPU that leases use."""

    code = "gsaas.gpu.in-use"
    status = 409
    fmt = (
        "GPU %(uuid)s cannot move while leases use it on %(owner)s: %(leases)s. End them and ask again; if that host "
        "is gone for good, gsaas hosts -forget=%(owner)s"
    )


class NoCapacity(GsaasError):
    """The request would fit into the cloud, but not now."""

    code = "gsaas.capacity.busy"
    status = 409
    fmt = "%(reason)s"


class NoDaemonPort(NoCapacity):
    """All ports of a GPU host that leases' daemons may use are taken.

    The sentence does not name the host, because tenants read it and must not learn hosts; the facts do.
    """

    code = "gsaas.capacity.ports"
    fmt = (
        "a chosen GPU host has a daemon on each of its ports %(ports)s; try again after another lease is released, "
        "or ask your operator to enlarge [daemons]lease_ports"
    )


class NoMaskedAddress(NoCapacity):
    """A host has too few free masked addresses for its own programs: those that run on it and not in a VM."""

    code = "gsaas.capacity.masked-addresses"
    fmt = (
        "the host of the program needs %(count)d masked addresses, and %(free)d are free; release leases that are used "
        "there, or ask your operator to enlarge [rodvr]local_prefix"
    )


class DirectDisabled(GsaasError):
    """The consumer would have to be told real addresses of GPUs, which the operator does not allow."""

    code = "gsaas.access.direct-disabled"
    status = 403
    fmt = (
        "this cloud does not disclose the real addresses of GPUs: launch with a VM, or name in "
        "lease.consumer.host a host that has a RODVR endpoint"
    )


class LocalShareExceeded(GsaasError):
    """The project's leases have as many masked addresses of a host as one project may have."""

    code = "gsaas.quota.local-addresses"
    status = 403
    fmt = (
        "the program needs %(count)d masked addresses of its host, where the project has %(used)d of at most "
        "%(limit)d; release leases that are used there"
    )


class NeverFits(GsaasError):
    """The request asks for more than the cloud has, so waiting would not help."""

    code = "gsaas.capacity.impossible"
    status = 409
    fmt = "%(reason)s"


class QueueFull(GsaasError):
    """The project has as many requests in the queue as the operator allows."""

    code = "gsaas.queue.full"
    status = 403
    fmt = (
        "the project already has %(waiting)d requests in the queue, which is the most it may have; "
        "try again when some have left it"
    )


class QueueTooLarge(GsaasError):
    """The server fields of the project's requests in the queue take as much room as the operator allows."""

    code = "gsaas.queue.too-large"
    status = 403
    fmt = (
        "the server fields of the project's requests in the queue would take %(kb)d KiB, and %(limit)d are the most; "
        "shorten user_data, or try again when some requests have left the queue"
    )


class TooManyLeases(GsaasError):
    """The project has as many leases in the database, released ones included, as the operator allows."""

    code = "gsaas.leases.too-many"
    status = 403
    fmt = (
        "the project has launched more than %(limit)d leases, released ones included, that the service still stores; "
        "ask your operator to delete old ones"
    )


class GrantRefused(GsaasError):
    """A consumer showed a grant that does not admit it. The base of the reasons."""

    code = "gsaas.grant.refused"
    status = 403
    fmt = "the grant is refused"
    outcome = "refused"
    """The value of the label in the metrics."""


class GrantForged(GrantRefused):
    """The signature is not valid: the grant was not issued by this service, or was altered."""

    code = "gsaas.grant.forged"
    fmt = "this is not a grant of this service; copy GSAAS_GRANT unchanged from the environment of the lease"
    outcome = "forged"


class GrantExpired(GrantRefused):
    """The grant was not redeemed before it expired."""

    code = "gsaas.grant.expired"
    fmt = (
        "the grant expired at %(at)s UTC; ask for the environment of lease %(lease_id)s again, which "
        "has a new one"
    )
    outcome = "expired"


class GrantReplayed(GrantRefused):
    """The grant was redeemed before, from the same address."""

    code = "gsaas.grant.replayed"
    fmt = "the grant of lease %(lease_id)s was redeemed already; the address is admitted, so no action is needed"
    outcome = "replayed"


class GrantStolen(GrantRefused):
    """The grant was shown by a consumer that it was not issued to."""

    code = "gsaas.grant.stolen"
    fmt = "the grant was not issued to the consumer that shows it: %(why)s"
    outcome = "stolen"


class GrantOver(GrantRefused):
    """The lease of the grant is over, or has no real addresses to reach."""

    code = "gsaas.grant.over"
    fmt = "lease %(lease_id)s is %(status)s, so its grant is no longer valid"
    outcome = "over"


class ServerRefused(GsaasError):
    """The cloud refuses to make the requested VM: its image, flavor, network or quota does not allow it."""

    code = "gsaas.server.refused"
    status = 400
    fmt = "%(reason)s"


class ServerIncomplete(ServerRefused):
    """The request names no image, flavor or network for the VM, and the cloud has no default for its project."""

    code = "gsaas.server.incomplete"


class PlainServerRefused(GsaasError):
    """A plain server gets no cGPUs: there were none for it, its project may not have them, or its lease has failed."""

    code = "gsaas.plain-server.refused"
    status = 409
    fmt = "server %(id)s gets no cGPUs: %(reason)s"


class PlainServerLate(GsaasError):
    """It was not found out in time whether a plain server gets cGPUs. This goes on: a later question may succeed."""

    code = "gsaas.plain-server.late"
    status = 503
    fmt = (
        "it could not be decided within %(seconds)g s whether server %(id)s gets cGPUs: Nova, the database or another "
        "claim takes longer; ask again"
    )


class CloudUnavailable(GsaasError):
    """The cloud that boots VMs does not answer, or fails."""

    code = "gsaas.cloud.unavailable"
    status = 503
    fmt = "%(reason)s"


class IllegalTransition(GsaasError):
    """The state of a lease does not allow a requested event."""

    code = "gsaas.lease.illegal-transition"
    status = 409
    fmt = "lease %(id)s is %(state)s, which does not allow %(event)s; its events so far: %(events)s"


class ClaimConflict(GsaasError):
    """Concurrent claims changed the chosen GPUs at each of the attempts ([gpgpums]claim_attempts)."""

    code = "gsaas.claim.conflict"
    status = 503
    fmt = "concurrent claims changed the chosen GPUs %(attempts)d times in a row; try again"


class ServiceUnhealthy(GsaasError):
    """This process cannot serve requests now; another process may."""

    code = "gsaas.unhealthy"
    status = 503
    fmt = "%(reason)s"


class DatabaseCannotStore(GsaasError):
    """The database answers, and stores nothing: nothing of the request has been done."""

    code = "gsaas.database.unwritable"
    status = 503
    fmt = "%(reason)s; nothing was changed"


class ServiceDisabled(GsaasError):
    """An operator drains this process: load balancers send requests to others. It still answers those that arrive."""

    code = "gsaas.disabled"
    status = 503
    fmt = "an operator has taken this process out of service: %(reason)s"


class RemotingLimit(BadRequest):
    """The remoting middleware cannot give one program that many cGPUs."""

    code = "gsaas.remoting.limit"
    fmt = "%(driver)s gives a program at most %(limit)d cGPUs, and you asked for %(count)d: %(why)s"


class KindNotServed(BadRequest):
    """The cloud has no remoting middleware for devices of that kind."""

    code = "gsaas.remoting.kind"
    fmt = "this cloud serves no devices of kind %(kind)s"
