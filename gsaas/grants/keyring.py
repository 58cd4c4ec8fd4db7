"""Signing grants and telling whether one is ours: values in, values out.

A grant is a JSON Web Token (RFC 7519) under HMAC-SHA256. It names its lease and project, and the moment
after which nobody need honour it. It is a promise of the service to itself: whoever shows it proves
nothing but to have been given it, so it is good for one redemption, and that is counted elsewhere.

Any number of keys verify, the first one signs. To change keys without refusing anybody: add the new key behind
the old one on all controllers, then put it in front on all, wait for the lifetime of a grant, and remove the old.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import functools
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jwt
from jwt.utils import base64url_encode
from oslo_config import cfg

ALGORITHM = "HS256"
LEAST_BYTES = 32
"""Of a key: as many as the digest has (RFC 7518, 3.2)."""

_COMPACT = json.JSONEncoder(separators=(",", ":"))
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,32}")


class BadKey(ValueError):
    """A key cannot be used; the message says why, and not what it is."""


class Forged(Exception):
    """Nobody who has our keys has signed this."""


class Expired(Exception):
    """It is ours, and too old."""


@dataclass(frozen=True)
class Grant:
    """What a grant says."""

    lease_id: str
    project_id: str
    expires_at: datetime.datetime
    """UTC, without a time zone in the value; whole seconds."""


class Keyring:
    """The keys of this service; without any, no grants are made."""

    def __init__(self, keys: Sequence[str] = (), lifetime: float = 300.0) -> None:
        """*keys* are `NAME:KEY`, the KEY base64url of at least 32 bytes; grants live *lifetime* seconds.

        Raises `BadKey`.
        """
        self.lifetime = datetime.timedelta(seconds=lifetime)
        self._keys: dict[str, bytes] = {}
        for key in keys:
            name, secret = _read(key)
            if name in self._keys:
                raise BadKey(f"two keys for grants are named {name}")
            self._keys[name] = secret

    def __bool__(self) -> bool:
        return bool(self._keys)

    def sign(self, lease_id: str, project_id: str, now: datetime.datetime) -> str:
        """Return a grant for a lease; there must be a key."""
        name, secret = next(iter(self._keys.items()))
        said = {"lease": lease_id, "project": project_id, "exp": _seconds(now + self.lifetime)}
        # `jwt.encode` would look at the key anew each time, which takes ten times as long as to sign.
        signed = f"{_header(name)}.{_segment(said)}"
        digest = hmac.digest(secret, signed.encode(), "sha256")
        return f"{signed}.{base64url_encode(digest).decode()}"

    def verify(self, grant: str, now: datetime.datetime) -> Grant:
        """Return what *grant* says; `Forged`, or `Expired` with what it says as its argument."""
        try:
            name = jwt.get_unverified_header(grant).get("kid")
            # What it says of its own algorithm is not asked; whether it is too old is, below, by our clock.
            said = jwt.decode(
                grant,
                self._keys[name],
                [ALGORITHM],
                options={"verify_exp": False, "require": ["lease", "project", "exp"]},
            )
            read = _grant(said)
        except (
            *(jwt.InvalidTokenError, KeyError, TypeError, ValueError, OverflowError),
            RecursionError,  # of a header that is nothing but brackets
        ) as error:
            raise Forged from error
        if now >= read.expires_at:
            raise Expired(read)
        return read


def of(conf: cfg.ConfigOpts) -> Keyring:
    """The keyring that *conf* describes; raises `BadKey`."""
    return Keyring(conf.grants.key, conf.grants.lifetime)


@functools.cache
def _header(key: str) -> str:
    return _segment({"typ": "JWT", "alg": ALGORITHM, "kid": key})


def _segment(said: Mapping[str, object]) -> str:
    """One of the parts of a token (RFC 7515, 7.1)."""
    return base64url_encode(_COMPACT.encode(said).encode()).decode()


def _grant(said: Mapping[str, object]) -> Grant:
    expires_at = datetime.datetime.fromtimestamp(said["exp"], datetime.UTC).replace(tzinfo=None)
    if not (isinstance(said["lease"], str) and isinstance(said["project"], str)):
        raise TypeError
    return Grant(said["lease"], said["project"], expires_at)


def _seconds(moment: datetime.datetime) -> int:
    return int(moment.replace(tzinfo=datetime.UTC).timestamp())


def _read(key: str) -> tuple[str, bytes]:
    name, colon, encoded = key.partition(":")
    if not colon or not _NAME.fullmatch(name):
        raise BadKey("a key for grants is written NAME:KEY, the name of letters, digits, _ . and -")
    try:
        secret = base64.b64decode(encoded + "=" * (-len(encoded) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadKey(f"the key {name} for grants is not base64url") from None
    if len(secret) < LEAST_BYTES:
        raise BadKey(
            f"the key {name} for grants has {len(secret)} bytes; {LEAST_BYTES} are the least"
        )
    return name, secret
