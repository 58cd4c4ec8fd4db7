"""Every situation GSaaS reports, by name: what happened, the facts, and a code that never changes.

`code` is what API clients match on; `status` is the HTTP family. A sub-class states its sentence in
`fmt` and is raised with the facts as keywords, which stay readable on the exception.
"""

from __future__ import annotations

from typing import Any


class GsaasError(Exception):
    """Base of all. Never raised itself."""

    code = "gsaas.internal"
    status = 500
    fmt = "internal error"

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        super().__init__(self.fmt % facts)


class BadRequest(GsaasError):
    """The request says something GSaaS does not understand or allow; nothing was changed."""

    code = "gsaas.bad-request"
    status = 400
    fmt = "%(reason)s"


class UserDataTooLarge(BadRequest):
    """User data, ours and the caller's together, is more than Nova takes (65,535 bytes of base64)."""

    code = "gsaas.user-data.too-large"
    fmt = (
        "user data is %(size)d bytes after base64, %(limit)d is the most Nova takes; "
        "shorten yours by %(excess)d bytes, or have it fetch the rest at boot"
    )


class UnknownPolicy(BadRequest):
    """The request names a scheduling policy that is not installed."""

    code = "gsaas.policy.unknown"
    fmt = "there is no policy %(name)r; the policies here are %(known)s"


class PolicyNotAllowed(BadRequest):
    """The request names a scheduling policy that the operator keeps from requests."""

    code = "gsaas.policy.not-allowed"
    fmt = "requests may not name the policy %(name)r here; those they may name are %(allowed)s"


class Unauthorized(GsaasError):
    """No token, or one that is not valid."""

    code = "gsaas.unauthorized"
    status = 401
    fmt = "%(reason)s"


class Forbidden(GsaasError):
    """The caller is known, and may not do this."""

    code = "gsaas.forbidden"
    status = 403
    fmt = "this needs %(rule)s, which the roles %(roles)s do not give"


class NoProject(GsaasError):
    """The token is for the whole cloud, for a domain, or for nothing; leases belong to projects."""

    code = "gsaas.forbidden.no-project"
    status = 403
    fmt = "this needs a token for a project; yours is for %(scope)s"


class QuotaExceeded(GsaasError):
    """The project would have more than an operator lets it have."""

    code = "gsaas.quota.exceeded"
    status = 403
    fmt = "%(reason)s"


class IdentityUnavailable(GsaasError):
    """Keystone, which knows who is calling, does not answer."""

    code = "gsaas.identity.unavailable"
    status = 503
    fmt = "Keystone does not answer, so nobody can be recognised; try again"


class NotFound(GsaasError):
    """There is no such thing, or it is another project's: the two answers are the same on purpose."""

    code = "gsaas.not-found"
    status = 404
    fmt = "there is no %(noun)s %(id)s"


class LeaseReleased(NotFound):
    """The lease is history: there is nothing left of it to act on."""

    code = "gsaas.lease.released"
    fmt = "lease %(id)s is released already"


class LeaseHoldsNothing(GsaasError):
    """The lease has no cGPUs (any more) that its environment could name."""

    code = "gsaas.lease.holds-nothing"
    status = 409
    fmt = "lease %(id)s is %(status)s and holds no cGPUs, so it has no environment"


class HostAlive(GsaasError):
    """A host that is to be forgotten was heard of a moment ago."""

    code = "gsaas.host.alive"
    status = 409
    fmt = (
        "host %(name)s was heard of %(ago)d s ago: it is not gone. Stop gsaas-monitor and gsaas-rodvr "
        "there and ask again in %(wait)d s; or force it, if the host was switched off since"
    )


class NoCapacity(GsaasError):
    """The request fits the cloud, but not now."""

    code = "gsaas.capacity.busy"
    status = 409
    fmt = "%(reason)s"


class NoDaemonPort(NoCapacity):
    """A GPU host has a daemon on every port that it may use for leases.

    Tenants read the sentence, and are not to know hosts: *host* is among the facts alone.
    """

    code = "gsaas.capacity.ports"
    fmt = (
        "a GPU host that was chosen has a daemon on every one of its ports %(ports)s; wait for a release, or have "
        "your operator enlarge [daemons]lease_ports"
    )


class NoMaskedAddress(NoCapacity):
    """The leases of a host's own programs have nearly all the addresses that there are for them."""

    code = "gsaas.capacity.masked-addresses"
    fmt = (
        "%(count)d masked addresses are needed on the programs' host and %(free)d are free; give back leases used "
        "there, or have your operator enlarge [rodvr]local_prefix"
    )


class NeverFits(GsaasError):
    """The request asks for more than the cloud owns: waiting would not help."""

    code = "gsaas.capacity.impossible"
    status = 409
    fmt = "%(reason)s"


class QueueFull(GsaasError):
    """The project has as many requests in the queue as it may have."""

    code = "gsaas.queue.full"
    status = 403
    fmt = "the project has %(waiting)d requests in the queue, and may have no more; wait for some of them"


class GrantRefused(GsaasError):
    """A grant was shown that lets nobody in."""

    code = "gsaas.grant.refused"
    status = 403
    fmt = "the grant is refused"
    outcome = "refused"
    """A word for the metrics."""


class GrantForged(GrantRefused):
    """It is not ours, or not as it was when we gave it out."""

    code = "gsaas.grant.forged"
    fmt = "this is no grant of this service; take GSAAS_GRANT as it is in the environment of the lease"
    outcome = "forged"


class GrantExpired(GrantRefused):
    """It was not redeemed in time."""

    code = "gsaas.grant.expired"
    fmt = (
        "the grant expired at %(at)s UTC; ask for the environment of lease %(lease_id)s again, which "
        "has a new one"
    )
    outcome = "expired"


class GrantReplayed(GrantRefused):
    """It was redeemed before, from the same address."""

    code = "gsaas.grant.replayed"
    fmt = "the grant of lease %(lease_id)s was redeemed already, and a second time is not needed"
    outcome = "replayed"


class GrantStolen(GrantRefused):
    """It was not given to whoever shows it."""

    code = "gsaas.grant.stolen"
    fmt = "the grant was not given to whoever shows it: %(why)s"
    outcome = "stolen"


class GrantOver(GrantRefused):
    """Its lease has no real addresses to reach, any more."""

    code = "gsaas.grant.over"
    fmt = "lease %(lease_id)s is %(status)s, and its grant opens nothing"
    outcome = "over"


class ServerRefused(GsaasError):
    """The cloud would not make the VM as asked (image, flavor, network, quota)."""

    code = "gsaas.server.refused"
    status = 400
    fmt = "%(reason)s"


class CloudUnavailable(GsaasError):
    """The cloud that boots VMs does not answer, or cannot do its work now."""

    code = "gsaas.cloud.unavailable"
    status = 503
    fmt = "%(reason)s"


class IllegalTransition(GsaasError):
    """A lease was asked to do what its state does not allow."""

    code = "gsaas.lease.illegal-transition"
    status = 409
    fmt = "lease %(id)s is %(state)s, which does not allow %(event)s; its story: %(story)s"


class ClaimConflict(GsaasError):
    """Others changed the chosen GPUs between reading and claiming, more often than we retry."""

    code = "gsaas.claim.conflict"
    status = 503
    fmt = "%(attempts)d claims in a row were overtaken by others; try again"


class Unhealthy(GsaasError):
    """This process cannot do its work now; another may."""

    code = "gsaas.unhealthy"
    status = 503
    fmt = "%(reason)s"


class RemotingLimit(BadRequest):
    """The remoting middleware cannot carry the request."""

    code = "gsaas.remoting.limit"
    fmt = "%(driver)s shows a program at most %(limit)d cGPUs, %(count)d were asked for: %(why)s"
