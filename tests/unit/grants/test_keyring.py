# SPDX-License-Identifier: Apache-2.0
"""What this service signed is valid until it expires, and nothing else ever is."""

from __future__ import annotations

import base64
import datetime
import json

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas.grants.keyring import (
    MAX_CHARACTERS,
    ExpiredGrant,
    Grant,
    InvalidGrant,
    InvalidKey,
    Keyring,
)

OLD, NEW = "old:" + "b2xk" * 11, "new:" + "bmV3" * 11
PEM = b"-----BEGIN PUBLIC KEY-----\nMAo=\n-----END PUBLIC KEY-----\n"
MISSING = object()
NOW = datetime.datetime(2026, 1, 1, 12, 0, 0, 250000)


def seconds(number: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=number)


@pytest.fixture
def ring():
    return Keyring([OLD], lifetime=60)


def parts(grant: str) -> list[str]:
    return grant.split(".")


def decoded(part: str) -> dict:
    return json.loads(base64.urlsafe_b64decode(part + "=="))


def signed(claims: dict) -> str:
    """A token of *claims* under the key `OLD`, as another program could make it."""
    payload = json.dumps(claims).encode()
    secret = base64.urlsafe_b64decode("b2xk" * 11)
    return jwt.PyJWS().encode(payload, secret, "HS256", headers={"kid": "old"})


def encoded(document: dict) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")


def test_it_says_for_which_lease_it_is_and_until_when(ring):
    grant = ring.sign("lease-1", "blue", NOW)

    assert ring.verify(grant, NOW) == Grant(
        "lease-1", "blue", datetime.datetime(2026, 1, 1, 12, 1, 0)
    )


def test_others_who_know_the_key_can_read_it(ring):
    """It is an ordinary JSON Web Token: any library verifies it."""
    said = jwt.decode(
        ring.sign("lease-1", "blue", NOW),
        base64.urlsafe_b64decode("b2xk" * 11),
        ["HS256"],
        options={"verify_exp": False},
    )
    assert (said["lease"], said["project"]) == ("lease-1", "blue")


def test_it_fits_into_the_environment_of_every_reader(ring):
    from gsaas.cloudinit import environment

    environment.validate({"GSAAS_GRANT": ring.sign("0" * 36, "f" * 64, NOW)})


def test_it_expires(ring):
    grant = ring.sign("lease-1", "blue", NOW)

    ring.verify(grant, NOW + seconds(59))
    with pytest.raises(ExpiredGrant) as expired:
        ring.verify(grant, NOW + seconds(60))
    assert expired.value.grant.lease_id == "lease-1"


def test_every_key_verifies_and_the_first_one_signs():
    by_old = Keyring([OLD]).sign("lease-1", "blue", NOW)
    both = Keyring([NEW, OLD])

    assert both.verify(by_old, NOW).lease_id == "lease-1"
    by_new = both.sign("lease-1", "blue", NOW)
    assert Keyring([NEW]).verify(by_new, NOW).lease_id == "lease-1"
    with pytest.raises(InvalidGrant):
        Keyring([OLD]).verify(by_new, NOW)


def test_a_key_that_is_gone_verifies_nothing_any_more():
    with pytest.raises(InvalidGrant):
        Keyring([NEW]).verify(Keyring([OLD]).sign("lease-1", "blue", NOW), NOW)


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


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["nocolon"], "NAME:KEY"),
        (["a b:" + "bmV3" * 11], "NAME:KEY"),
        (["short:bmV3"], "short for grants has 3 bytes"),
        (["odd:????"], "odd for grants is not base64url"),
        (
            ["pem:" + base64.urlsafe_b64encode(PEM).decode()],
            "pem for grants cannot be used",
        ),
        ([OLD, OLD], "two keys for grants are named old"),
    ],
)
def test_a_key_that_cannot_be_used_is_named_and_not_shown(keys, said):
    with pytest.raises(InvalidKey, match=said) as error:
        Keyring(keys)
    assert "bmV3" not in str(error.value)


def test_without_keys_there_are_no_grants():
    assert not Keyring()
    with pytest.raises(InvalidGrant):
        Keyring().verify(Keyring([OLD]).sign("lease-1", "blue", NOW), NOW)


def test_a_header_of_nothing_but_brackets_is_a_forgery_like_any_other():
    header = base64.urlsafe_b64encode(b"[" * 3000).decode().rstrip("=")
    with pytest.raises(InvalidGrant):
        Keyring([OLD]).verify(f"{header}.e30.e30", NOW)
