# SPDX-License-Identifier: Apache-2.0
"""The claims of a process, as tests open them, and what tests look at inside: what is there changes here alone."""

from __future__ import annotations

import threading
from dataclasses import fields
from typing import Any

from gsaas.db.database import Database
from gsaas.gpgpums.batches import Batches
from gsaas.gpgpums.changes import Change
from gsaas.gpgpums.claims import Claims, Tuning
from gsaas.gpgpums.committer import Clients
from gsaas.gpgpums.entries import Entry
from gsaas.gpgpums.indexed_gpus import Mix
from gsaas.gpgpums.mirror import Mirror
from gsaas.gpgpums.pool import Pool
from gsaas.gpgpums.rules import AccessRules, MaskedAddresses, QueueRules, Rules

MASKED = MaskedAddresses("169.254.71.0/24", 8308)
LOCAL = MaskedAddresses("169.254.72.0/21", 8308)

Committing = Batches[Change, Entry]


def open_claims(
    database: Database, *, attempts: int = 20, heartbeat_timeout: float = 3600, **options: Any
) -> Claims:
    """Return the claims of a process; *options* are those of its parts, by name."""
    options = {"attempts": attempts, "heartbeat_timeout": heartbeat_timeout, **options}
    options = {name: value for name, value in options.items() if value is not None}
    if "announce" in options or "is_client_waiting" in options:
        clients = Clients(
            options.pop("announce", lambda *_: None),
            options.pop("is_client_waiting", lambda _: False),
        )
    else:
        clients = Clients()

    def of(kind: Any) -> dict[str, Any]:
        return {one.name: options.pop(one.name) for one in fields(kind) if one.name in options}

    tuning, queue, access = Tuning(**of(Tuning)), QueueRules(**of(QueueRules)), of_access(options)
    rules = Rules(queue=queue, access=access, **{"masked": MASKED, **of(Rules)})
    assert not options, options
    return Claims(database, rules, tuning, clients)


def of_access(options: dict[str, Any]) -> AccessRules:
    names = ("daemon_ports", "native", "local_per_project", "direct")
    return AccessRules(**{name: options.pop(name) for name in names if name in options})


def database_of(claims: Claims) -> Database:
    return claims._database


def lock_of(claims: Claims) -> threading.Lock:
    """The lock without which nobody chooses GPUs."""
    return claims.mirror.lock


def pool_of(claims: Claims) -> Pool:
    return claims.mirror.pool


def mix_of(claims: Claims) -> Mix:
    """The recent requests of the process."""
    return claims._mixes.mix


def open_mirror(database: Database, heartbeat_timeout: float = 35) -> Mirror:
    """Return a copy of the GPUs that has read everything."""
    mirror = Mirror(database, heartbeat_timeout)
    mirror.following(lambda: None)
    return mirror


def batches_of(claims: Claims) -> Committing:
    """Where the claims of threads wait to be written together."""
    return claims._committer._batches


def is_writing(batch: Committing) -> bool:
    """Whether a thread writes now, and none waits."""
    return batch._is_led and not batch._waiting


def number_waiting(batch: Committing) -> int:
    return len(batch._waiting)
