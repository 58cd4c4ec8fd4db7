# SPDX-License-Identifier: Apache-2.0
"""Forged and changed grants: what this service did not sign itself admits nobody."""

from __future__ import annotations

import base64
import json

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas.grants.keyring import MAX_CHARACTERS, Grant, InvalidGrant, Keyring
from tests.unit.grants.test_keyring import NOW, OLD, decoded, parts

MISSING = object()


@pytest.fixture
def ring() -> Keyring:
    return Keyring([OLD], lifetime=60)


def signed(claims: dict) -> str:
    """A token of *claims* under the key `OLD`, as another program could make it."""
    payload = json.dumps(claims).encode()
    secret = base64.urlsafe_b64decode("b2xk" * 11)
    return jwt.PyJWS().encode(payload, secret, "HS256", headers={"kid": "old"})


def encoded(document: dict) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def test_another_key_under_a_known_name_is_forgery(ring):
    with pytest.raises(InvalidGrant):
        ring.verify(Keyring(["old:" + "bmV3" * 11]).sign("lease-1", "blue", NOW), NOW)


def test_a_grant_that_says_something_else_now_is_forged(ring):
    head, body, signature = parts(ring.sign("lease-1", "blue", NOW))
    other = encoded(decoded(body) | {"lease": "lease-2"})

    with pytest.raises(InvalidGrant):
        ring.verify(".".join((head, other, signature)), NOW)


@pytest.mark.parametrize("algorithm", ["none", "HS512", "RS256"])
def test_a_grant_does_not_choose_how_it_is_verified(ring, algorithm):
    head, body, _ = parts(ring.sign("lease-1", "blue", NOW))
    head = encoded(decoded(head) | {"alg": algorithm})

    with pytest.raises(InvalidGrant):
        ring.verify(f"{head}.{body}.", NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"lease": MISSING},
        {"project": MISSING},
        {"exp": MISSING},
        {"iss": MISSING},
        {"iss": "another service"},
        {"iss": ["gsaas"]},
        {"lease": 1},
        {"project": None},
        {"exp": "soon"},
        {"exp": 1e300},
        {"exp": None},
        {"nbf": "soon"},
    ],
)
def test_claims_that_no_grant_has_are_refused_even_if_they_are_signed(ring, changes):
    claims = {"iss": "gsaas", "lease": "lease-1", "project": "blue", "exp": 4102444800}
    assert ring.verify(signed(claims), NOW).lease_id == "lease-1"
    changed = {name: value for name, value in (claims | changes).items() if value is not MISSING}

    with pytest.raises(InvalidGrant):
        ring.verify(signed(changed), NOW)


@pytest.mark.parametrize("headers", [{}, {"kid": 1}, {"kid": "unknown"}, {"kid": ["old"]}])
def test_a_header_that_names_no_key_is_refused(ring, headers):
    head, body, signature = parts(ring.sign("lease-1", "blue", NOW))
    head = encoded({"typ": "JWT", "alg": "HS256"} | headers)

    with pytest.raises(InvalidGrant):
        ring.verify(".".join((head, body, signature)), NOW)


def test_a_text_that_is_too_long_is_refused(ring):
    claims = {"iss": "gsaas", "lease": "l" * MAX_CHARACTERS, "project": "blue", "exp": 4102444800}

    with pytest.raises(InvalidGrant):
        ring.verify(signed(claims), NOW)


@given(st.text(max_size=200))
def test_no_text_is_a_grant(text):
    with pytest.raises(InvalidGrant):
        Keyring([OLD]).verify(text, NOW)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_byte_of_it_may_change(position, by):
    grant = bytearray(Keyring([OLD]).sign("lease-1", "blue", NOW), "ascii")
    grant[position % len(grant)] ^= by
    # Some bits of base64's last characters mean nothing: a token that decodes to the same is no forgery.
    try:
        read = Keyring([OLD]).verify(grant.decode("latin-1"), NOW)
    except InvalidGrant:
        return
    assert read == Grant("lease-1", "blue", read.expires_at)


def test_a_header_of_nothing_but_brackets_is_a_forgery_like_any_other():
    header = base64.urlsafe_b64encode(b"[" * 3000).decode().rstrip("=")
    with pytest.raises(InvalidGrant):
        Keyring([OLD]).verify(f"{header}.e30.e30", NOW)
