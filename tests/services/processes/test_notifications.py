# SPDX-License-Identifier: Apache-2.0
"""Notifications over a real RabbitMQ: they arrive as their schemas say, and a broker that is away delays nobody."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from gsaas.metrics import counted
from tests.api.world import World
from tests.openstack.guide import blocks
from tests.support.databases import USER
from tests.support.notifications import listening
from tests.support.rabbitmq import RabbitMQ
from tests.support.waiting import PATIENCE, until

pytestmark = [
    pytest.mark.services,
    pytest.mark.skipif(os.geteuid() != 0, reason="starts a broker as another user"),
]

SETTINGS = """\
[DEFAULT]
host = controller1
transport_url = {url}
[oslo_messaging_notifications]
driver = messagingv2
[notifications]
topics = {topic}
audit_topics = {topic}-audit
audit = true
buffer = {buffer}
"""


def build(folder: Path, bus: str, topic: str, buffer: int = 1000) -> World:
    """Return a world whose notifications go to *bus*, as those of a real controller do."""
    settings = SETTINGS.format(url=bus, topic=topic, buffer=buffer)
    return World.build(folder, settings=settings, bus=None)


def end(world: World, lease: str) -> None:
    world.call("member", "DELETE", f"/v1/leases/{lease}")
    world.engine.settle()


def test_they_arrive_valid_on_their_topics(tmp_path: Path, broker: RabbitMQ):
    world = build(tmp_path, broker.url, "versioned_notifications")
    # A listener that comes later gets what was sent before, as the queue is in the broker.
    with (
        listening(world.conf, broker.url, "versioned_notifications") as inbox,
        listening(world.conf, broker.url, "versioned_notifications-audit") as audit,
    ):
        lease = world.launch(mode="shared", memory_mb=512)["id"]
        world.engine.settle()
        end(world, lease)
        world.call("stranger", "GET", f"/v1/leases/{lease}")
        received = inbox.wait(5)
        (refused,) = audit.wait(1)
    assert sorted(one.event_type for one in received) == [
        "lease.activate",
        "lease.create.end",
        "lease.create.start",
        "lease.release.end",
        "lease.release.start",
    ]
    assert {one.publisher for one in (*received, refused)} == {"gsaas-api:controller1"}
    assert refused.event_type == "audit.gsaas.access"
    world.notifications.close()
    world.database.close()


def test_the_guides_policy_limits_the_queues(broker: RabbitMQ):
    (command,) = blocks("Notifications")[1:]
    run(broker, *shlex.split(command))
    ((policy,)) = json.loads(run(broker, "rabbitmqctl", "list_policies", "--formatter=json"))
    assert json.loads(policy["definition"]) == {"max-length": 100000, "message-ttl": 86400000}
    assert re.search(policy["pattern"], "versioned_notifications.info")
    assert re.search(policy["pattern"], "notifications.info")
    assert not re.search(policy["pattern"], "gsaas-engine")


def run(broker: RabbitMQ, program: str, *words: str) -> str:
    """Run a program of RabbitMQ against the broker, as the user that the broker runs as."""
    return subprocess.run(
        [f"/usr/lib/rabbitmq/bin/{program}", "--quiet", *words],
        env=broker._environment(),
        user=USER,
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    ).stdout


def test_while_the_broker_is_away_every_launch_succeeds_and_the_buffer_is_sent_later(
    tmp_path: Path, broker: RabbitMQ
):
    world = build(tmp_path, broker.url, "later", buffer=3)
    full = counted.NOTIFICATIONS_DROPPED.labels("buffer-full")
    before = full._value.get()
    first = world.launch(mode="shared", memory_mb=64)["id"]
    with listening(world.conf, broker.url, "later") as inbox:
        assert {one.data["id"] for one in inbox.wait(2)} == {first}
    broker.kill()
    try:
        leases = [world.launch(mode="shared", memory_mb=64)["id"] for _ in range(10)]
        assert len(set(leases)) == 10
        dropped = full._value.get() - before
        # Three are in the buffer, and the thread waits with one, if it took that before the buffer was full.
        assert dropped in (6, 7)
    finally:
        broker.start()
    with listening(world.conf, broker.url, "later") as inbox:
        # The broker may send the first one again, whose acknowledgement it has lost.
        until(
            lambda: len(inbox.leases() - {first}) == len(leases) - dropped,
            "what waited in the buffer",
        )
        assert inbox.leases() - {first} <= set(leases)
    world.notifications.close()
    world.database.close()


def test_a_broker_that_was_never_there_delays_no_launch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    world = build(tmp_path, "rabbit://guest:guest@127.0.0.1:1/", "never")
    assert world.launch(mode="shared", memory_mb=64)["id"]
    until(lambda: "Could not send notification to never" in caplog.text, "oslo.messaging")
    world.notifications.close()
    world.database.close()
