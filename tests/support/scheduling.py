# SPDX-License-Identifier: Apache-2.0
"""The claims of a process, as tests open them, and what tests look at inside: what is there changes here alone."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from gsaas.db.database import Database
from gsaas.gpgpums import group_commit
from gsaas.gpgpums.addresses import MaskedAddresses
from gsaas.gpgpums.claims import Claims
from gsaas.gpgpums.indexed_gpus import Mix
from gsaas.gpgpums.pool import Pool
from gsaas.gpgpums.pool_cache import PoolCache
from gsaas.objects.ports import PortRange

MASKED = MaskedAddresses("169.254.71.0/24", 8308)
LOCAL = MaskedAddresses("169.254.72.0/21", 8308)

Mirror = PoolCache
"""The copy of the GPUs that a process keeps; `refresh` reads what has changed."""
Group = group_commit.GroupCommit[Any, Any]


def open_claims(
    database: Database,
    *,
    attempts: int = 20,
    heartbeat_timeout: float = 3600,
    daemon_ports: Mapping[str, PortRange] | None = None,
    **options: Any,
) -> Claims:
    """Return the claims of a process; *options* are those of its parts, by name."""
    return Claims(
        database,
        attempts=attempts,
        heartbeat_timeout=heartbeat_timeout,
        daemon_ports=daemon_ports,
        **{"masked": MASKED, **options},
    )


def database_of(claims: Claims) -> Database:
    return claims.scheduler._database


def lock_of(claims: Claims) -> threading.Lock:
    """The lock without which nobody chooses GPUs."""
    return claims.scheduler.lock


def pool_of(claims: Claims) -> Pool:
    return claims.scheduler._cache.pool


def mix_of(claims: Claims) -> Mix:
    """The recent requests of the process."""
    return claims.scheduler.mix


def open_mirror(database: Database, heartbeat_timeout: float = 35) -> Mirror:
    """Return a copy of the GPUs that has read everything."""
    cache = PoolCache(heartbeat_timeout)
    with database.reading() as connection:
        cache.begin_reading()
        cache.take_over(cache.read(connection))
    return cache


def claims_in_turn(claims: Claims) -> Group:
    """Where the claims of threads wait to be written together."""
    return claims._groups._group


def returns_in_turn(claims: Claims) -> Group:
    """Where the returns of threads wait to be written together."""
    return claims.returns._group


def is_writing(group: Group) -> bool:
    """Whether a thread writes now, and none waits."""
    return bool(group._leaders) and not group._waiting


def number_waiting(group: Group) -> int:
    return len(group._waiting)
