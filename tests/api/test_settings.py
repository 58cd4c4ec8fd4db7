# SPDX-License-Identifier: Apache-2.0
"""Settings that an operator changes while the service runs reach the agents that use them."""

from __future__ import annotations

import json

import pytest

from gsaas.db import models
from tests.api.world import only_error


def put(world, interval, caller: str = "admin"):
    body = {"settings": {"monitor_interval": interval}}
    return world.call(caller, "PATCH", "/v1/settings", body)


def test_nothing_is_set_at_first(world):
    shown = world.call("admin", "GET", "/v1/settings").json
    assert shown == {"settings": {"monitor_interval": None}}


def test_the_interval_of_monitors_is_set_and_the_monitors_are_notified(world):
    assert put(world, 5).json == {"settings": {"monitor_interval": 5}}
    assert world.call("admin", "GET", "/v1/settings").json["settings"] == {"monitor_interval": 5}
    assert world.engine.monitors_notified == 1
    with world.database.read() as session:
        setting = session.get_one(models.SettingRow, "monitor_interval")
    assert (setting.value, setting.updated_by) == (5, "admin")


def test_what_was_set_can_be_set_again_and_undone(world):
    for interval in (5, 60, None, None):
        assert put(world, interval).json == {"settings": {"monitor_interval": interval}}
    with world.database.read() as session:
        assert session.get(models.SettingRow, "monitor_interval") is None


@pytest.mark.parametrize("interval", [0, -1, 3601, "5", 2.5, True])
def test_an_interval_that_cannot_be_one_changes_nothing(world, interval):
    error = only_error(put(world, interval))
    assert error["status"] == 400
    assert "settings.monitor_interval" in error["detail"]
    assert world.engine.monitors_notified == 0


def test_only_administrators_change_settings(world):
    assert only_error(put(world, 5, "manager"))["status"] == 403


def test_the_command_line_shows_and_changes_them(desk):
    desk.sit("admin")
    assert desk.type("settings")[1] == "  GPU hosts report  as their configuration says\n"
    assert desk.type("settings", "-interval=5")[1] == "  GPU hosts report  every 5 s\n"
    assert json.loads(desk.type("settings", "-f", "json")[1]) == {"monitor_interval": 5}
    assert "as their configuration" in desk.type("settings", "-interval=default")[1]
    assert desk.type("settings", "-interval=0")[0] == 2
