# SPDX-License-Identifier: Apache-2.0
"""What the database, the cloud and the agents of hosts say, of about one moment. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gsaas.cloud.base import ListedServer
from gsaas.objects.endpoint_audit import EndpointAudit
from gsaas.objects.lease import Lease


@dataclass(frozen=True)
class Stored:
    """What the database says, in one snapshot, which is newer than what everybody else says."""

    now: datetime.datetime
    leases: Mapping[str, Lease]
    """Those that are not released, and released ones that still have something; by id."""
    named: Mapping[str, Lease] = field(default_factory=dict)
    """Any other leases that servers or agents name, by id; those that are not stored are not here."""
    endpoints: frozenset[str] = frozenset()
    """The hosts that have an endpoint."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Compute host -> its address on the GPU network."""
    miscounted: Mapping[str, str] = field(default_factory=dict)
    """GPU -> what of it is counted wrongly, as a sentence."""
    over_committed: frozenset[str] = frozenset()
    """Those of them of which more is claimed and kept than they have."""
    orphaned_claims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Lease that is not stored, or waits in the queue -> GPUs of its claims."""
    orphaned_shares: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Lease without claims -> the reservations whose shares it is said to have."""


@dataclass(frozen=True)
class NotAsked:
    """Somebody who did not answer: only what they would have told is not compared."""

    who: str
    """`the endpoint of compute1`, `the cloud`."""
    why: str


@dataclass(frozen=True)
class Facts:
    """Everything that was told."""

    stored: Stored
    servers: Mapping[str, ListedServer] | None = None
    """The servers of all projects, by id; None if the cloud did not answer, or cannot list them."""
    gone: frozenset[str] = frozenset()
    """The leases whose servers are not among these, nor known to the cloud when it was asked for each."""
    endpoints: Mapping[str, EndpointAudit] = field(default_factory=dict)
    """By host."""
    monitors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Host -> the report of its monitor on daemons and fence: `gsaas.objects.daemon.DaemonReport.to_dict()`."""
    not_asked: tuple[NotAsked, ...] = ()
