# SPDX-License-Identifier: Apache-2.0
"""The server that a notification of Nova's is about."""

from __future__ import annotations

import pytest

from gsaas.cloud.base import ServerChange
from gsaas.engine import nova_notifications


def payload(**data):
    return {"nova_object.name": "InstanceActionPayload", "nova_object.data": data}


@pytest.mark.parametrize("event", ["instance.delete.end", "instance.update", "instance.reboot.end"])
def test_whatever_happens_to_a_server_is_a_reason_to_look_at_it(event):
    assert nova_notifications.server_change(event, payload(uuid="s")) == ServerChange("s")


def test_a_new_server_also_says_which_lease_it_is_of():
    data = payload(uuid="s", tags=["other", "gsaas-lease-l"])
    assert nova_notifications.server_change("instance.create.end", data) == ServerChange("s", "l")


@pytest.mark.parametrize(
    "data",
    [
        {"metadata": {"gsaas:ncgpus": "1"}},
        {"flavor": {"nova_object.data": {"extra_specs": {"gsaas:ncgpus": "1"}}}},
    ],
)
def test_it_says_whether_the_server_has_properties_of_ours(data):
    event = nova_notifications.server_change("instance.create.start", payload(uuid="s", **data))
    assert event == ServerChange("s", asks=True)


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("service.update", payload(uuid="s")),
        ("flavor.create", payload(flavorid="f")),
        ("instance.update", {}),
        ("instance.update", payload(uuid=None)),
        ("instance.update", payload(uuid="s", tags=None)),
        ("instance.update", payload(uuid="s", flavor=None, metadata=None)),
    ],
)
def test_a_notification_about_something_else_is_ignored_and_an_odd_one_does_no_harm(event, data):
    assert nova_notifications.server_change(event, data) in (None, ServerChange("s"))
