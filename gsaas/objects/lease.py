# SPDX-License-Identifier: Apache-2.0
"""A lease and its claims, as they are read from the database and passed around: frozen values.

The fields of `Lease` and `Claim` are the columns of the tables `leases` and `claims`, with the same names and in the
same order (`gsaas.db.models`). A changed lease is a new value, made with
`Lease.with_`; `gsaas.db.leases` writes it.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oslo_utils import timeutils

from gsaas.objects.address import Address
from gsaas.objects.daemon import key_of_gpu, key_of_lease
from gsaas.objects.device_kinds import CUDA
from gsaas.objects.lifecycle import ENTITLED


@dataclass(frozen=True)
class GpuHost:
    """The host of a claimed GPU, as its gsaas-monitor reported it last."""

    name: str
    gpu_address: str | None
    """Its address on the GPU network, where its daemons listen."""
    forgotten: bool
    """An operator has declared that the host is gone for good."""
    monitor_seen_at: datetime.datetime | None
    """When its monitor reported last (UTC); None before the first report."""
    monitor_report: Mapping[str, Any] | None
    """Its daemons and its fence: `gsaas.objects.daemon.DaemonReport.to_dict()`."""
    monitor_interval: float | None
    """Seconds between two reports of its monitor, according to the last one."""
    drain_by: datetime.datetime | None = None
    """From when on connections to its GPUs may be cut, because leases are to leave them; None: they may not."""


@dataclass(frozen=True)
class ClaimedGpu:
    """The GPU that a claim is a share of, and its host."""

    uuid: str
    daemon_port: int
    """TCP port of the GPU's own daemon."""
    withdrawn_reason: str | None
    """Why the GPU cannot be used; None while it can."""
    host: GpuHost

    @property
    def host_name(self) -> str:
        """Return the name of its host."""
        return self.host.name


@dataclass(frozen=True)
class Claim:
    """One cGPU: the share of one GPU that one lease has."""

    lease_id: str
    position: int
    """The cGPU's number in its lease, from 0: the device number that the VM sees."""
    gpu_uuid: str
    memory_mb: int
    """MiB claimed; in exclusive mode all the GPU has."""
    masked_ip: str | None = None
    """The address that the consumer gets; None if it gets the daemon's real address, or needs none."""
    masked_port: int | None = None
    masked_host: str | None = None
    """The host whose programs use the masked address; None for the masked address of a VM."""
    daemon_host: str | None = None
    """The GPU host, if a daemon of the lease serves the cGPU; None: the GPU's daemon serves it."""
    daemon_port: int | None = None
    """TCP port of that daemon."""
    daemon_device: int = 0
    """The cGPU's number among those that this daemon serves."""
    daemon_turn: int = 0
    """`gsaas.objects.daemon.Daemon.turn` of that daemon."""
    claimed_gpu: ClaimedGpu | None = None
    """Not a column: None where only the rows of the lease itself were read."""

    @property
    def daemon_key(self) -> str:
        """Return the key of the daemon that serves it: `gsaas.objects.daemon.Daemon.key`."""
        if self.daemon_port is None:
            return key_of_gpu(self.gpu_uuid)
        return key_of_lease(self.lease_id, self.position - self.daemon_device, self.daemon_turn)

    @property
    def gpu(self) -> ClaimedGpu:
        """Return the GPU; raises `LookupError` if it was not read along with the claim."""
        if self.claimed_gpu is None:
            raise LookupError(f"the GPU of claim {self.lease_id}/{self.position} was not read")
        return self.claimed_gpu

    @property
    def is_lost(self) -> bool:
        """Return whether its GPU has failed, or is gone for good; raises what `gpu` raises."""
        return self.gpu.host.forgotten or self.gpu.withdrawn_reason is not None

    @property
    def masked_address(self) -> Address | None:
        """Return the masked address; None if the claim has none."""
        if self.masked_ip is None or self.masked_port is None:
            return None
        return Address(self.masked_ip, self.masked_port)

    @property
    def real_address(self) -> Address:
        """Return where the daemon of the cGPU listens: its own daemon, or the one of its GPU.

        Raises `LookupError` if the GPU was not read, or the address of its host is not known.
        """
        if self.gpu.host.gpu_address is None:
            raise LookupError(f"host {self.gpu.host_name} has not reported its GPU address")
        return Address(self.gpu.host.gpu_address, self.daemon_port or self.gpu.daemon_port)


@dataclass(frozen=True)
class Lease:
    """*count* cGPUs of equal size for one consumer. Times are UTC, without a time zone in the value."""

    id: str
    project_id: str
    user_id: str
    name: str
    status: str
    """`gsaas.objects.lifecycle.Status`."""
    count: int
    mode: str
    memory_mb: int | None
    """MiB per cGPU in shared mode; None in exclusive mode."""
    locality: str
    requirements: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of `gsaas.objects.request.Request`: `stored_requirements` of what was asked for."""
    policy: str | None = None
    """The scheduling policy that chose its GPUs; before that the requested one, None for the default."""
    remoting: str = ""
    """The remoting driver that its environment is for."""
    wanted_host: str | None = None
    """The compute host that locality `local` pins the VM to."""
    avoided_hosts: Sequence[str] = ()
    """GPU hosts that the VM of a lease with locality `remote` must not run on."""
    has_server: bool = True
    """False: GSaaS boots no server for it; its consumer exists already."""
    consumer_host: str | None = None
    """The host on which the consumer of a lease without a server runs, as its caller says."""
    consumer_uid: int | None = None
    """The only user of that host who may use it; None: every user may."""
    consumer_address: str | None = None
    """The only address that its grant may be redeemed from; None: the first that presents the grant."""
    access: str | None = None
    """How its consumer reaches its GPUs: `gsaas.objects.access.Access`; None until it has claims."""
    admitted_address: str | None = None
    """The address that the fences of its GPU hosts admit; it has to be removed before the GPUs are returned."""
    server_request: Mapping[str, Any] = field(default_factory=dict)
    """The caller's server fields, as Nova takes them; empty once the server exists, or the lease has ended."""
    server_id: str | None = None
    server_host: str | None = None
    port_id: str | None = None
    port_tap: str | None = None
    port_mac: str | None = None
    port_ip: str | None = None
    bound_host: str | None = None
    """The host whose endpoint was sent the binding; it has to be removed there."""
    fault_step: str | None = None
    fault_message: str | None = None
    created_at: datetime.datetime = field(default_factory=timeutils.utcnow)
    updated_at: datetime.datetime = field(default_factory=timeutils.utcnow)
    priority: int = 0
    """In the queue; a larger one is served sooner."""
    queued_at: datetime.datetime | None = None
    wait_until: datetime.datetime | None = None
    """When it leaves the queue without GPUs; None: never."""
    waiter_seen_at: datetime.datetime | None = None
    """When the client that waits for it polled last; None: no client has to poll, or it has received the outcome."""
    keepalive: int | None = None
    """Seconds of silence of its client after which it ends; None: it lasts until it is released."""
    kept_until: datetime.datetime | None = None
    """When it ends unless its client sends a request before; None while it waits, or without a keepalive."""
    claimed_at: datetime.datetime | None = None
    claimed_mb: int | None = None
    """MiB that it claimed in all; stays as history, as `claimed_gpus` does."""
    claimed_gpus: float | None = None
    """The same in GPUs: the sum over its shares of the part of their GPU."""
    released_at: datetime.datetime | None = None
    """When its GPUs were returned."""
    driven_by: str | None = None
    """The engine that owns it, and takes its steps until `driven_until`."""
    driven_until: datetime.datetime | None = None
    timings: Mapping[str, float] | None = field(default_factory=dict)
    """Phase of the launch -> seconds it took; see `gsaas.objects.timings`."""
    request_key: str | None = None
    """Identifies the request that made it: a hash of its caller and its Idempotency-Key; None: it had none, or it was
    more than a day ago."""
    request_digest: str | None = None
    """A hash of that request's body; None without a key."""
    plain_server_id: str | None = None
    """The plain server that it was claimed for (`gsaas.objects.plain_server`), also after its end: a server gets a
    lease once. None: GSaaS makes the server, or there is none."""
    reclaim_at: datetime.datetime | None = None
    """When it loses its GPUs if it is still idle; None: its owner was not warned, or it is in use again."""
    reservation_id: str | None = None
    """The reservation that it was launched in, also after that has ended; None: it has its GPUs of the pool."""
    port_other_ips: Sequence[str] | None = None
    """Further IPv4 addresses of its server's port; None: it has none."""
    duration: int | None = None
    """Seconds from when it has its GPUs until it ends; None: it ends at a certain time, or when somebody ends it."""
    ends_at: datetime.datetime | None = None
    """When it ends; None: that is not known until it has its GPUs, or it has no end."""
    warned_end: datetime.datetime | None = None
    """The end of which its owner was warned last."""
    claimed_models: str | None = None
    """The models that `claimed_gpus` are of, in which parts: `gsaas.objects.prices.models_text`. None: not known."""
    moving: str | None = None
    """How far the move of cGPUs of it is, `gsaas.objects.move.Stage`; None: none moves."""
    move_kind: str | None = None
    """The kind of its last move, `gsaas.objects.move.Kind`."""
    moving_since: datetime.datetime | None = None
    """When its last move began; None: it has not moved."""
    movable: str | None = None
    """The kind of moves that its owner consents to, `gsaas.objects.move.Kind`; None: only those that cut nothing."""
    usage_changed_at: datetime.datetime | None = None
    """When a move changed `claimed_gpus` or `claimed_models` last; None: none has."""
    past_usage: Sequence[Mapping[str, Any]] | None = None
    """What these were before, oldest first: `gsaas.objects.usage.Stint.to_dict()`; None: they never changed."""
    claims: tuple[Claim, ...] = ()
    """Not a column: its cGPUs, by position."""
    others: tuple[Claim, ...] = ()
    """Not a column: of its cGPUs that move, the claims on the GPUs that they go to, or that they have left."""

    def with_(self, **changes: Any) -> Lease:
        """Return this lease with other values in the fields of *changes*; raises `TypeError` for an unknown field.

        Does what `dataclasses.replace` does, in a tenth of the time: a claim changes a lease several times.
        """
        fields = self.__dict__
        if not changes.keys() <= fields.keys():
            unknown = sorted(changes.keys() - fields.keys())
            raise TypeError(f"a lease has no field named {', '.join(unknown)}")
        changed = object.__new__(Lease)
        changed.__dict__.update(fields, **changes)
        return changed

    @property
    def kind(self) -> str:
        """Return the kind of its devices, of `gsaas.objects.device_kinds`."""
        kind: str = self.requirements.get("kind", CUDA)
        return kind

    @property
    def one_daemon(self) -> bool:
        """Return whether one daemon serves all its cGPUs, if they have daemons of their own at all."""
        return bool(self.requirements.get("one_daemon"))

    @property
    def ports_per_daemon(self) -> int:
        """Return how many TCP ports each daemon has that serves it: that of the claim and those after it."""
        ports: int = self.requirements.get("ports_per_daemon", 1)
        return ports

    @property
    def all_claims(self) -> tuple[Claim, ...]:
        """Return all that it claims of GPUs: of a cGPU that moves, both claims."""
        return (*self.claims, *self.others)

    @property
    def cut_at(self) -> datetime.datetime | None:
        """Return from when on its connections may be cut, because hosts of its GPUs are drained; None: they are not.

        Raises `LookupError` if its GPUs were not read along with its claims.
        """
        if self.status not in ENTITLED:
            return None
        return min(filter(None, (claim.gpu.host.drain_by for claim in self.claims)), default=None)

    @property
    def is_ready(self) -> bool:
        """Return whether a consumer without a server can use the lease as soon as it has its claims."""
        own_daemons = any(claim.daemon_port is not None for claim in self.claims)
        return not self.has_server and self.bound_host is None and not own_daemons

    @property
    def has_only_claims(self) -> bool:
        """Return whether it has nothing to clean up but its claims, so that it can end in one transaction."""
        return self.is_ready and self.admitted_address is None

    def is_abandoned(self, now: datetime.datetime) -> bool:
        """Return whether its client has been silent for longer than its keepalive."""
        return self.status in ENTITLED and self.kept_until is not None and self.kept_until < now

    def has_silent_client(self, since: datetime.datetime) -> bool:
        """Return whether its client announced to poll, and has not polled since then."""
        return self.waiter_seen_at is not None and self.waiter_seen_at < since
