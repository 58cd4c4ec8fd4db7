# SPDX-License-Identifier: Apache-2.0
"""Security events are valid by pycadf, which OpenStack's consumers read them with, and by our schema."""

from __future__ import annotations

import itertools

import pytest
from pycadf import cadftaxonomy

from gsaas.notifications import cadf
from gsaas.notifications.cadf import SecurityEvent
from tests.support.notifications import expect_valid

KINDS = (cadf.AUTHENTICATE, cadf.ACCESS, cadf.GRANT, cadf.CHANGE)
ACTIONS = ("authenticate", "read", "read/list", "create", "update", "delete", "enable", "disable")


@pytest.mark.parametrize(("kind", "action"), list(itertools.product(KINDS, ACTIONS)))
def test_every_event_is_valid(kind: str, action: str):
    for succeeded, status in ((True, 200), (False, 403), (False, None)):
        happened = SecurityEvent(
            *(kind, action, succeeded, "gsaas.forbidden", "192.0.2.1"),
            agent="gsaas",
            user_id="user",
            project_id="project",
            request_id="req-1",
            target_type=cadf.LEASE,
            target_id="gpu1.example.org",
            status=status,
            path="/v1/leases",
        )
        built = cadf._event(happened, "gsaas-api:controller1")
        assert built.is_valid()
        parts = (built.initiator, built.target, built.observer, built.reason)
        assert all(part.is_valid() for part in parts)
        expect_valid(kind, cadf.payload(happened, "gsaas-api:controller1"))
        assert cadftaxonomy.is_valid_resource(built.target.typeURI)


def test_what_is_not_known_is_unknown_and_long_texts_are_clipped():
    happened = SecurityEvent(
        *(cadf.AUTHENTICATE, "authenticate", False, "gsaas.unauthorized", None),
        agent="x" * 5000,
        path="/v1/" + "x" * 5000,
    )
    found = cadf.payload(happened, "gsaas-api:controller1")
    expect_valid(cadf.AUTHENTICATE, found)
    assert found["initiator"]["id"] == found["target"]["id"] == "unknown"
    assert len(found["initiator"]["host"]["agent"]) == len(found["requestPath"]) == cadf.MAX_TEXT
