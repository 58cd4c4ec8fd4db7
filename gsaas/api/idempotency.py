# SPDX-License-Identifier: Apache-2.0
"""Launches that may be repeated: a request with the Idempotency-Key of an earlier one returns what that one has made.

The lease stores a hash of the key, together with its caller, and a digest of the body. Where two requests with one key
meet, the unique index of the hash lets one of them make a lease; the other one then finds it.

A body may contain a password, which whoever reads the database must not be able to try out with the digest. So this is
made with a key of the service. Where the service has none, it covers all of the body but what is secret: two requests
that differ in nothing else count as the same.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from typing import Any

from oslo_db import exception as db_exception

from gsaas import exceptions
from gsaas.api.request import ApiRequest
from gsaas.db import leases, request_keys
from gsaas.objects.lease import Lease

HEADER = "Idempotency-Key"
PURPOSE = "digests of requests"
SECRETS = {"adminPass", "user_data"}
"""Server fields that are in no digest that is made without a key."""
_NAME = 8
"""Characters of a digest that tell which key of the service made it; the others tell bodies apart."""
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
    digest = next(_digests(request))
    return lease.with_(request_key=_key_hash(request), request_digest=digest)


def launched_before(request: ApiRequest) -> Lease | None:
    """Return the lease that a request with the same key has made, as it is now; None without a key or a lease.

    Raises `IdempotencyKeyReused` if that was for another body. Where that cannot be told any more, because the service
    has lost the key that made the digest, it counts as the same body.
    """
    if request.idempotency_key is None:
        return None
    key, database = _key_hash(request), request.service.database
    with database.reading(snapshot=False) as connection:
        launched = request_keys.find(connection, key)
    if launched is None:
        return None
    if launched.is_over:
        database.change(lambda connection: request_keys.forget(connection, key))
        return None
    if launched.digest is not None and _is_of_another_body(request, launched.digest):
        raise exceptions.IdempotencyKeyReused(id=launched.lease_id)
    with database.reading() as connection:
        return leases.get(connection, launched.lease_id)


def _key_hash(request: ApiRequest) -> str:
    caller = request.project_id, request.context.user_id, request.idempotency_key
    return hashlib.sha256(json.dumps(caller).encode()).hexdigest()


def _digests(request: ApiRequest) -> Iterator[str]:
    """Yield the digest of the body by each key of the service, that for new leases first; the last one has no key."""
    lease = request.body["lease"]
    for key in request.service.keyring.derived(PURPOSE):
        yield _digest(key, request.idempotency_key, lease)
    if server := lease.get("server"):
        lease = lease | {"server": {name: server[name] for name in server.keys() - SECRETS}}
    yield _digest(b"", request.idempotency_key, lease)


def _digest(key: bytes, *parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True).encode()
    name, digest = (hmac.digest(key, each, "sha256").hex() for each in (b"", text))
    return name[:_NAME] + digest[_NAME:]


def _is_of_another_body(request: ApiRequest, digest: str) -> bool:
    by_the_same_key = [one for one in _digests(request) if one[:_NAME] == digest[:_NAME]]
    return bool(by_the_same_key) and digest not in by_the_same_key
