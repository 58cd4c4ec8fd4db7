# SPDX-License-Identifier: Apache-2.0
"""What this service signed is valid until it expires, and nothing else ever is."""

from __future__ import annotations

import base64
import datetime
import json

import jwt
import pytest

from gsaas.grants.keyring import (
    ExpiredGrant,
    Grant,
    InvalidGrant,
    InvalidKey,
    Keyring,
)

OLD, NEW = "old:" + "b2xk" * 11, "new:" + "bmV3" * 11
PEM = b"-----BEGIN PUBLIC KEY-----\nMAo=\n-----END PUBLIC KEY-----\n"
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
