# SPDX-License-Identifier: Apache-2.0
"""The changes of the books that concern moves of cGPUs to other GPUs. Pure; `gsaas.objects.move` has the stages.

A move overtakes the queue: an operator asks for it, and it leaves the cloud with as much free memory as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gsaas import exceptions
from gsaas.gpgpums.allocation import daemons_of, usage_of
from gsaas.gpgpums.changes import LeaseChange
from gsaas.gpgpums.entries import AdvanceQueue, Entry
from gsaas.objects import move
from gsaas.objects.gpu import EXCLUSIVE, Gpu
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import LeaseEvent, Status
from gsaas.objects.move import Kind, Stage
from gsaas.objects.placement import Placement, Refusal
from gsaas.objects.request import ANY, LOCAL, ONE, REMOTE, SPREAD, Request
from gsaas.objects.usage import Stint

if TYPE_CHECKING:
    from gsaas.gpgpums.view import View


@dataclass(frozen=True)
class Target:
    """Which cGPUs of a lease are to move, and where to."""

    index: int | None = None
    """The number of the cGPU; None: all of the lease."""
    gpu_uuid: str | None = None
    """The GPU that they go to; None: the policy of the lease chooses."""
    host: str | None = None
    """The host whose GPUs they go to; those that are there stay. None: any."""
    leaving: frozenset[str] | None = None
    """The GPUs that they are to leave: of the lease's cGPUs only those on one of these move. None: on any."""


@dataclass(frozen=True)
class Move(LeaseChange):
    """cGPUs of a lease claim other GPUs, to go there; a second time while they do so changes nothing.

    If the second one may cut connections, the first one may, too, from then on.
    """

    target: Target
    kind: Kind
    because: LeaseEvent | None = None
    """An event that is recorded before that of the move."""

    chooses = True
    may_be_left_out = False

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `NotFound`, `LeaseNotMovable`, `NoDaemonPort`."""
        entry = plan_move(view, view.lease(self.lease_id), self.target, self.kind)
        if self.because is None or not entry.events:
            return entry
        return replace(entry, events=[self.because, *entry.events])


@dataclass(frozen=True)
class Switch(LeaseChange):
    """The GPUs that cGPUs go to become those of the lease; nothing, if they do not go there any more, or cannot."""

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `NotFound`."""
        before = view.lease(self.lease_id)
        if before.status != Status.ACTIVE or before.moving != Stage.STARTING:
            return Entry()
        if not view.may_switch(before.id):  # the engine gives the move up
            return Entry()
        new = {claim.position: claim for claim in before.others}
        old = tuple(claim for claim in before.claims if claim.position in new)
        claims = tuple(
            _at(claim, new[claim.position]) if claim.position in new else claim
            for claim in before.claims
        )
        lease = before.with_(
            claims=claims,
            **_usage(view, before, claims),
            others=tuple(
                replace(claim, masked_ip=None, masked_port=None, masked_host=None) for claim in old
            ),
            moving=Stage.SWITCHED,
        )
        moved = LeaseEvent(move.MOVED, before.status, _sentence(view, old, before.others))
        return Entry(before=before, lease=lease, events=[moved])


@dataclass(frozen=True)
class EndMove(LeaseChange):
    """A lease returns the GPUs that it has besides its own; nothing, if it has none that are unused."""

    def plan(self, view: View) -> Entry:
        """Return the entry; raises `NotFound`."""
        before = view.lease(self.lease_id)
        if before.moving != Stage.ENDING:
            return Entry()
        kept = {claim.gpu_uuid for claim in before.claims}
        gpus = {}
        for uuid, size in _sizes(before.others).items():
            gpu = view.pool[uuid]
            gpus[uuid] = gpu.release(
                size, generation=gpu.generation + 1, leases=0 if uuid in kept else 1
            )
        after = before.with_(others=(), moving=None)
        effects = [AdvanceQueue()] if view.queue_may_wait() else []
        return Entry(gpus, before, after, effects=effects)


def plan_move(view: View, before: Lease, target: Target, kind: Kind) -> Entry:
    """Return the entry with which cGPUs of a lease begin to move. Raises `LeaseNotMovable`, `NoDaemonPort`."""
    if (reason := move.refusal(before, target.index)) is not None:
        raise exceptions.LeaseNotMovable(id=before.id, reason=reason)
    kind = move.consented(before, kind)
    if before.moving is not None:
        if not _is_under_way(view, before, target):
            reason = "the last move of its cGPUs has not ended; try again when it has"
            raise exceptions.LeaseNotMovable(id=before.id, reason=reason)
        again = before.with_(move_kind=kind) if kind is Kind.CUT else before
        return Entry(before=before, lease=again)
    moving = _moving(view, before, target)
    placement = _place(view, before, moving, target)
    own = {claim.gpu_uuid for claim in before.claims}
    gpus: dict[str, Gpu] = {}
    for number, (uuid, size) in enumerate(placement.memory_by_gpu().items(), start=1):
        gpus[uuid] = view.pool[uuid].claim(
            size,
            exclusive=before.mode == EXCLUSIVE,
            generation=view.newest_generation + number,
            same_lease=uuid in own,
        )
    others = _others(view, before, moving, placement)
    lease = before.with_(
        others=others, moving=Stage.STARTING, move_kind=kind, moving_since=view.now
    )
    began = LeaseEvent(move.MOVE, before.status, f"{kind}: {_sentence(view, moving, others)}")
    return Entry(gpus, before, lease, events=[began])


def destinations(lease: Lease) -> list[tuple[Claim, Claim]]:
    """Return of each cGPU of *lease* that moves the claims on the GPUs that it leaves and that it goes to."""
    own = {claim.position: claim for claim in lease.claims}
    pairs = [(own[other.position], other) for other in lease.others]
    return pairs if lease.moving == Stage.STARTING else [(to, of) for of, to in pairs]


def _is_under_way(view: View, lease: Lease, target: Target) -> bool:
    """Return whether the cGPUs of *target* go there already."""
    if lease.moving == Stage.ENDING:
        return False
    going = {to.position: view.pool[to.gpu_uuid] for _, to in destinations(lease)}
    if target.index is not None and going.keys() != {target.index}:
        return False
    return all(
        target.gpu_uuid in (None, gpu.uuid)
        and target.host in (None, gpu.host)
        and gpu.uuid not in (target.leaving or ())
        for gpu in going.values()
    )


def _moving(view: View, lease: Lease, target: Target) -> list[Claim]:
    """Return the claims of the cGPUs that are to move; raises `LeaseNotMovable` if there are none, or too many."""
    claims = [claim for claim in lease.claims if target.index in (None, claim.position)]
    if target.gpu_uuid is not None:
        claims = [claim for claim in claims if claim.gpu_uuid != target.gpu_uuid]
    if target.host is not None:
        claims = [claim for claim in claims if view.pool[claim.gpu_uuid].host != target.host]
    if target.leaving is not None and not lease.one_daemon:
        claims = [claim for claim in claims if claim.gpu_uuid in target.leaving]
        if claims and lease.mode == EXCLUSIVE:  # those of other models or sizes move afterwards
            first = _whole(view.pool[claims[0].gpu_uuid])
            claims = [claim for claim in claims if _whole(view.pool[claim.gpu_uuid]) == first]
    if not claims:
        raise exceptions.LeaseNotMovable(id=lease.id, reason="it is there already")
    if lease.one_daemon and len(claims) < lease.count:
        reason = (
            f"one daemon serves all its {lease.count} cGPUs, and some of them are there already"
        )
        raise exceptions.LeaseNotMovable(id=lease.id, reason=reason)
    return claims


def _place(view: View, lease: Lease, moving: Sequence[Claim], target: Target) -> Placement:
    """Return the GPUs that the claims *moving* go to; raises `LeaseNotMovable`."""
    request = _request(view, lease, moving, target)
    older = _older_monitors(view, moving)
    barred = {gpu.uuid for gpu in _unsuitable(view, lease, moving, target)}
    barred |= {gpu.uuid for gpu in view.pool if gpu.host in older}
    policy = view.policy_of(lease)
    models = {view.pool[claim.gpu_uuid].model for claim in moving}
    others = {gpu.uuid for gpu in view.pool if gpu.model not in models}
    # Its owner has not asked for the move: another model, at another price, only where there is no other GPU.
    with view.pool.without(barred | others):
        answer = view.propose_ignoring_queue(request, policy)
    if isinstance(answer, Refusal):
        with view.pool.without(barred):
            answer = view.propose_ignoring_queue(request, policy)
    if isinstance(answer, Refusal):
        reason = f"no other GPU of what it may have fits: {answer.reason}"
        if older:
            reason += (
                f"; not within {' or '.join(older)}, where gsaas-monitor is of an earlier release"
            )
        raise exceptions.LeaseNotMovable(id=lease.id, reason=reason)
    return answer


def _older_monitors(view: View, moving: Sequence[Claim]) -> list[str]:
    """Return the hosts within which the cGPUs cannot move: monitors there know no second daemon of one."""
    hosts = {claim.daemon_host for claim in moving if claim.daemon_host is not None}
    return sorted(host for host in hosts if not view.knows_turns(host))


def _request(view: View, lease: Lease, moving: Sequence[Claim], target: Target) -> Request:
    """Return the request for the GPUs that some cGPUs of a lease go to; raises `LeaseNotMovable`.

    What it says of the place of the consumer, and what depends on the cGPUs that stay, is left to `_unsuitable`.
    """
    fields = {"count": len(moving), "mode": lease.mode, "memory_mb": lease.memory_mb}
    request = Request.from_dict({**lease.requirements, **fields, "locality": ANY})
    if target.host is not None and request.host not in (None, target.host):
        reason = f"its request was for GPUs of {request.host} only"
        raise exceptions.LeaseNotMovable(id=lease.id, reason=reason)
    if lease.mode == EXCLUSIVE and len({_whole(view.pool[one.gpu_uuid]) for one in moving}) > 1:
        reason = "its GPUs are of different models or sizes: move them one by one, by their index"
        raise exceptions.LeaseNotMovable(id=lease.id, reason=reason)
    if request.hosts == SPREAD and target.host is not None and len(moving) > 1:
        reason = "its request was for GPUs of different hosts"
        raise exceptions.LeaseNotMovable(id=lease.id, reason=reason)
    return request.with_(host=target.host or request.host)


def _unsuitable(view: View, lease: Lease, moving: Sequence[Claim], target: Target) -> Iterator[Gpu]:
    """Yield the GPUs that cGPUs of a lease must not go to.

    They go to other GPUs than theirs, and the lease is afterwards as it was requested: local or remote to where its
    consumer is now, on one host or on different ones. A whole GPU is replaced by one of the same model and size: so
    the lease counts as much afterwards for quotas and usage, and its program finds what it was made for.
    """
    left = {claim.gpu_uuid for claim in moving}
    whole = {_whole(view.pool[uuid]) for uuid in left}
    consumer = lease.server_host if lease.has_server else lease.consumer_host
    staying = {view.pool[one.gpu_uuid].host for one in lease.claims if one not in moving}
    hosts = lease.requirements.get("hosts", ANY)
    for gpu in view.pool:
        if (
            gpu.uuid in left
            or gpu.uuid in (target.leaving or ())
            or (target.gpu_uuid is not None and gpu.uuid != target.gpu_uuid)
            or (lease.mode == EXCLUSIVE and _whole(gpu) not in whole)
            or (lease.locality == LOCAL and gpu.host != consumer)
            or (lease.locality == REMOTE and gpu.host == consumer)
            or (hosts == ONE and staying and gpu.host not in staying)
            or (hosts == SPREAD and gpu.host in staying)
        ):
            yield gpu


def _whole(gpu: Gpu) -> tuple[str, int]:
    return gpu.model, gpu.memory_mb


def _others(
    view: View, lease: Lease, moving: Sequence[Claim], placement: Placement
) -> tuple[Claim, ...]:
    """Return the claims on the GPUs of a placement, to which the claims *moving* go."""
    hosts = [view.pool[share.gpu_uuid].host for share in placement.shares]
    positions = [claim.position for claim in moving]
    daemons = daemons_of(lease, lease.remoting, positions, hosts, view)
    return tuple(
        Claim(
            lease.id,
            claim.position,
            share.gpu_uuid,
            share.memory_mb,
            **daemon,
            daemon_turn=_turn(lease, claim, daemon.get("daemon_host")),
        )
        for claim, share, daemon in zip(moving, placement.shares, daemons, strict=True)
    )


def _turn(lease: Lease, claim: Claim, host: str | None) -> int:
    """Return the turn of the new daemon of a cGPU: another one than that of its daemon on the same host."""
    first = claim.position - claim.daemon_device
    turns = [one.daemon_turn for one in lease.claims if one.position == first]
    same_host = host is not None and host == claim.daemon_host
    return 1 - turns[0] if same_host and turns else 0


def _usage(view: View, before: Lease, claims: Sequence[Claim]) -> dict[str, Any]:
    """Return the fields of a lease that say what it uses from now on, with *claims*, and what it used before."""
    used = usage_of((view.pool[claim.gpu_uuid], claim.memory_mb) for claim in claims)
    same = (before.claimed_gpus, before.claimed_models) == (*used.values(),)
    if same or before.claimed_gpus is None:
        return {}
    past = Stint(view.now, before.claimed_gpus, before.claimed_models)
    return {
        **used,
        "past_usage": [*(before.past_usage or ()), past.to_dict()],
        "usage_changed_at": view.now,
    }


def _at(claim: Claim, new: Claim) -> Claim:
    """Return *claim* with the GPU and the daemon of *new*; the address that its consumer uses stays."""
    return replace(
        claim,
        gpu_uuid=new.gpu_uuid,
        memory_mb=new.memory_mb,
        daemon_host=new.daemon_host,
        daemon_port=new.daemon_port,
        daemon_device=new.daemon_device,
        daemon_turn=new.daemon_turn,
    )


def _sizes(claims: Collection[Claim]) -> dict[str, int]:
    sizes = Counter[str]()
    for claim in claims:
        sizes[claim.gpu_uuid] += claim.memory_mb
    return dict(sizes)


def _sentence(view: View, old: Sequence[Claim], new: Sequence[Claim]) -> str:
    """Return which cGPUs go from where to where."""
    return "; ".join(
        f"cGPU {of.position} from {of.gpu_uuid} of {view.pool[of.gpu_uuid].host} "
        f"to {to.gpu_uuid} of {view.pool[to.gpu_uuid].host}"
        for of, to in zip(old, new, strict=True)
    )
