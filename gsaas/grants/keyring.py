# SPDX-License-Identifier: Apache-2.0
"""Signs grants and verifies them. Pure: no I/O.

A grant is a JSON Web Token (RFC 7519), signed with HMAC-SHA256 by PyJWT. Its claims:

    iss      always "gsaas": another token that was signed with the same key is no grant (RFC 8725, 3.8)
    lease    the lease's id. It limits redemption to one as `jti` does: `gsaas.grants.redemption` counts
             redemptions per lease, so all grants of a lease are good for one together
    project  the project of the lease
    exp      the second after which the grant cannot be redeemed any more

The header's `kid` names the key. Any number of keys verify, the first one signs. To change keys without refusing a
grant: add the new key behind the old one on all controllers, then put it in front on all, wait for the lifetime of a
grant, and remove the old one.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
from oslo_config import cfg

ALGORITHM = "HS256"
ISSUER = "gsaas"
CLAIMS = ("iss", "lease", "project", "exp")
"""All of them are required."""
MIN_KEY_BYTES = 32
"""A key has at least as many bytes as the digest (RFC 7518, 3.2)."""
MAX_CHARACTERS = 4096
"""A longer text is refused unread; a grant has about 260 characters."""

_KEY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,32}")


class InvalidKey(ValueError):
    """A key cannot be used; the message says why, and does not contain the key."""


class InvalidGrant(Exception):
    """The text is no grant that was signed with one of our keys."""


class ExpiredGrant(Exception):
    """The grant is genuine, and `grant` is no longer valid."""

    def __init__(self, grant: Grant) -> None:
        super().__init__(grant)
        self.grant = grant


@dataclass(frozen=True)
class Grant:
    """The claims of a grant."""

    lease_id: str
    project_id: str
    expires_at: datetime.datetime
    """UTC, without a time zone in the value; whole seconds."""


class Keyring:
    """The keys of this service; false without any, and then no grants are made."""

    def __init__(self, keys: Sequence[str] = (), lifetime: float = 300.0) -> None:
        """*keys* are `NAME:KEY`, the KEY base64url of at least 32 bytes; grants are valid for *lifetime* seconds.

        Raises `InvalidKey`.
        """
        self.lifetime = datetime.timedelta(seconds=lifetime)
        self._keys: dict[str, bytes] = {}
        for key in keys:
            name, secret = _parse_key(key)
            if name in self._keys:
                raise InvalidKey(f"two keys for grants are named {name}")
            self._keys[name] = secret

    def __bool__(self) -> bool:
        return bool(self._keys)

    def sign(self, lease_id: str, project_id: str, now: datetime.datetime) -> str:
        """Return a grant for a lease, signed with the first key; there must be one. *now* is UTC, without a zone."""
        name, secret = next(iter(self._keys.items()))
        claims = {
            "iss": ISSUER,
            "lease": lease_id,
            "project": project_id,
            "exp": now + self.lifetime,  # PyJWT takes a moment without a zone as UTC
        }
        return jwt.encode(claims, secret, ALGORITHM, headers={"kid": name})

    def derived(self, purpose: str) -> list[bytes]:
        """Return a key for another *purpose* for each of the keys, in their order: none tells anything of a grant's."""
        return [hmac.digest(secret, purpose.encode(), "sha256") for secret in self._keys.values()]

    def verify(self, grant: str, now: datetime.datetime) -> Grant:
        """Return the claims of *grant*; raises `InvalidGrant`, or `ExpiredGrant` if it is genuine and too old."""
        if len(grant) > MAX_CHARACTERS:
            raise InvalidGrant
        try:
            # The header is not to be trusted yet: it chooses among our keys, and the algorithm is pinned below.
            name = jwt.get_unverified_header(grant)["kid"]
            claims = jwt.decode(
                grant,
                self._keys[name],
                [ALGORITHM],
                issuer=ISSUER,
                # Not PyJWT's clock decides whether it has expired, but *now*, the clock that signed it.
                options={"verify_exp": False, "require": list(CLAIMS)},
            )
            verified = _grant(claims)
        except (
            *(jwt.InvalidTokenError, KeyError, TypeError, ValueError, OverflowError),
            RecursionError,  # of JSON that is nothing but brackets
        ) as error:
            raise InvalidGrant from error
        if now >= verified.expires_at:
            raise ExpiredGrant(verified)
        return verified


def from_conf(conf: cfg.ConfigOpts) -> Keyring:
    """Return the keyring of `[grants]`; raises `InvalidKey`."""
    return Keyring(conf.grants.key, conf.grants.lifetime)


def _grant(claims: Mapping[str, Any]) -> Grant:
    """Check the types of verified claims; raises `TypeError`, `ValueError` or `OverflowError`."""
    expires_at = datetime.datetime.fromtimestamp(claims["exp"], datetime.UTC).replace(tzinfo=None)
    if not (isinstance(claims["lease"], str) and isinstance(claims["project"], str)):
        raise TypeError
    return Grant(claims["lease"], claims["project"], expires_at)


def _parse_key(key: str) -> tuple[str, bytes]:
    name, colon, encoded = key.partition(":")
    if not colon or not _KEY_NAME.fullmatch(name):
        raise InvalidKey(
            "a key for grants is written NAME:KEY, the name of letters, digits, _ . and -"
        )
    try:
        secret = base64.b64decode(encoded + "=" * (-len(encoded) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidKey(f"the key {name} for grants is not base64url") from None
    if len(secret) < MIN_KEY_BYTES:
        raise InvalidKey(
            f"the key {name} for grants has {len(secret)} bytes; {MIN_KEY_BYTES} are the least"
        )
    try:
        # PyJWT refuses asymmetric keys and JSON Web Keys as secrets: say so now, and not at the first grant.
        jwt.get_algorithm_by_name(ALGORITHM).prepare_key(secret)
    except jwt.InvalidKeyError as error:
        raise InvalidKey(f"the key {name} for grants cannot be used: {error}") from None
    return name, secret
