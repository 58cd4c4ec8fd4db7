# SPDX-License-Identifier: Apache-2.0
"""Launches that may be repeated: a request with the Idempotency-Key of an earlier one returns what that one has made.

The lease stores a hash of the key, together with its caller, and a hash of the body. Where two requests with one key
meet, the unique index of the first hash lets one of them make a lease; the other one then finds it.
"""

from __future__ import annotations

import hashlib
import json
import re

from oslo_db import exception as db_exception

from gsaas import exceptions
from gsaas.api.request import ApiRequest
from gsaas.db import leases, request_keys
from gsaas.db.database import Database, retried
from gsaas.objects.lease import Lease

HEADER = "Idempotency-Key"
KEY = r"[!-~]{1,255}"

REFUSALS = (exceptions.GsaasError, db_exception.DBDuplicateEntry)
"""What a launch raises when another request with its key was faster: the index refuses it, or the other one has taken
the GPUs or the quota that it needs."""


def check(key: str | None) -> str | None:
    """Return the *key* of a request; None for one without a key. Raises `BadRequest` if it cannot be a key."""
    if key is not None and not re.fullmatch(KEY, key):
        raise exceptions.BadRequest(
            reason=f"the header {HEADER} must have 1 to 255 visible ASCII characters, without a space"
        )
    return key


def mark(request: ApiRequest, lease: Lease) -> Lease:
    """Return a new *lease* with the key and the body of the request that makes it, if it has a key."""
    if request.idempotency_key is None:
        return lease
    return lease.with_(request_key=_key_hash(request), request_digest=_digest(request))


def launched_before(request: ApiRequest) -> Lease | None:
    """Return the lease that a request with the same key has made, as it is now; None without a key or a lease.

    Raises `IdempotencyKeyReused` if that was for another body.
    """
    if request.idempotency_key is None:
        return None
    key, database = _key_hash(request), request.service.database
    with database.reading(snapshot=False) as connection:
        launched = request_keys.find(connection, key)
    if launched is None:
        return None
    if launched.is_over:
        _forget(database, key)
        return None
    if launched.digest != _digest(request):
        raise exceptions.IdempotencyKeyReused(id=launched.lease_id)
    with database.reading() as connection:
        return leases.get(connection, launched.lease_id)


@retried
def _forget(database: Database, key: str) -> None:
    with database.writing() as connection:
        request_keys.forget(connection, key)


def _key_hash(request: ApiRequest) -> str:
    caller = request.project_id, request.context.user_id, request.idempotency_key
    return hashlib.sha256(json.dumps(caller).encode()).hexdigest()


def _digest(request: ApiRequest) -> str:
    return hashlib.sha256(json.dumps(request.body, sort_keys=True).encode()).hexdigest()
