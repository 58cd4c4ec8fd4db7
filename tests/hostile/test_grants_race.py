# SPDX-License-Identifier: Apache-2.0
"""One grant shown by many processes' worth of connections at once, on a real database server: one is admitted."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial

import pytest
from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.db import leases
from gsaas.db.database import Database
from gsaas.grants.keyring import Keyring
from gsaas.grants.redemption import PresentedGrant, redeem
from gsaas.objects.lifecycle import Event
from tests.support import rows

pytestmark = pytest.mark.services

KEYRING = Keyring(["test:" + "dGVz" * 11])
AT_ONCE, ROUNDS = 6, 8


@pytest.fixture
def doors(database):
    """Several connections to the same database, as several API workers and engines have."""
    url = database.engine.url.render_as_string(hide_password=False)
    opened = [Database.open(url) for _ in range(AT_ONCE)]
    yield opened
    for door in opened:
        door.close()


def furnish(database, lease_id):
    columns = {"status": "ACTIVE", "has_server": False, "access": "direct"}
    with database.write() as session:
        session.add(rows.lease(lease_id, **columns))


def all_at_once(actions):
    """Run them all from one moment on; return what each of them returned, in no order."""
    start, results = threading.Barrier(len(actions)), []

    def run(action):
        start.wait()
        results.append(action())

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def release(door, lease_id):
    """Begin to end a lease, and tell whom its fences have to forget."""
    with door.write() as session:
        return leases.transition(session.connection(), lease_id, Event.RELEASE).admitted_address


def show(door, key, address):
    try:
        redeem(door, KEYRING, PresentedGrant(key, address))
    except exceptions.GrantRefused as refusal:
        return refusal.outcome
    return "redeemed"


def test_of_many_who_show_one_grant_at_once_exactly_one_is_admitted(database, doors):
    for round_ in range(ROUNDS):
        lease_id = f"lease-{round_}"
        furnish(database, lease_id)
        key = KEYRING.sign(lease_id, "project-1", timeutils.utcnow())

        outcomes = all_at_once(
            [partial(show, door, key, f"192.0.2.{number}") for number, door in enumerate(doors)]
        )

        assert Counter(outcomes) == {"redeemed": 1, "stolen": AT_ONCE - 1}
        with database.read() as session:
            admitted = leases.get(session.connection(), lease_id).admitted_address
            story = leases.events(session.connection(), lease_id)
        (redeemed,) = [event for event in story if event.event == "redeem-grant"]
        assert redeemed.detail == f"from {admitted}"


def test_a_grant_is_redeemed_before_the_release_or_not_at_all(database, doors):
    """An address admitted after its lease began to end would be forgotten by nobody."""
    for round_ in range(ROUNDS):
        lease_id = f"lease-{round_}"
        furnish(database, lease_id)
        key = KEYRING.sign(lease_id, "project-1", timeutils.utcnow())

        outcome = all_at_once(
            [partial(show, doors[0], key, "192.0.2.1"), partial(release, doors[1], lease_id)]
        )

        (seen,) = set(outcome) - {"redeemed", "over"}
        assert seen == ("192.0.2.1" if "redeemed" in outcome else None)
        with database.read() as session:
            assert leases.get(session.connection(), lease_id).admitted_address == seen
