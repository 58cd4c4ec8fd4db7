# SPDX-License-Identifier: Apache-2.0
"""Usage: which projects a caller sees, and which periods are valid."""

from __future__ import annotations

import csv
import datetime
import io

import pytest
from oslo_utils import timeutils

from gsaas.db import models
from gsaasclient.times import minute
from tests.api.world import World, only_error

DAY = "/v1/usage?start=2026-01-05&end=2026-01-06"


@pytest.fixture
def settings() -> str:
    """The configuration of the world, for tests to replace."""
    return ""


@pytest.fixture
def world(tmp_path, settings):
    built = World.build(tmp_path, settings=settings)
    yield built
    built.database.close()


@pytest.fixture
def history(world):
    """A day in January on which blue had two GPUs for six hours, and red a quarter of one for all of it."""
    blue = world.launch(count=2)
    red = world.launch("stranger", mode="shared", memory_mb=2048)
    for lease in (blue, red):
        world.call("admin", "DELETE", f"/v1/leases/{lease['id']}")
    world.engine.settle()
    day = datetime.datetime(2026, 1, 5)
    with world.database.write() as session:
        stored = session.get(models.LeaseRow, blue["id"])
        stored.claimed_at = day + datetime.timedelta(hours=3)
        stored.released_at = day + datetime.timedelta(hours=9)
        stored = session.get(models.LeaseRow, red["id"])
        stored.claimed_at = day - datetime.timedelta(hours=3)
        stored.released_at = day + datetime.timedelta(hours=90)
    return world


BLUE = {"project_id": "blue", "leases": 1, "gpu_hours": 12.0, "memory_mb_hours": 12.0 * 8192}
RED = {"project_id": "red", "leases": 1, "gpu_hours": 6.0, "memory_mb_hours": 24.0 * 2048}


@pytest.mark.parametrize(
    ("caller", "seen"),
    [
        ("reader", [BLUE]),
        ("stranger", [RED]),
        ("admin", [BLUE, RED]),
        ("service", [BLUE, RED]),
        ("admin of blue", [BLUE, RED]),
    ],
)
def test_tenants_see_their_own_usage_and_admins_that_of_all_projects(history, caller, seen):
    assert history.call(caller, "GET", DAY).json["usage"] == {
        "start": "2026-01-05T00:00:00.000000Z",
        "end": "2026-01-06T00:00:00.000000Z",
        "projects": seen,
    }


def test_left_out_the_period_is_this_month_until_now(world):
    world.launch()
    before = timeutils.utcnow()
    usage = world.call("reader", "GET", "/v1/usage").json["usage"]
    start, end = (datetime.datetime.fromisoformat(usage[w][:-1]) for w in ("start", "end"))
    assert start == datetime.datetime(end.year, end.month, 1)
    assert before <= end <= timeutils.utcnow()
    assert usage["projects"][0]["leases"] == 1


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("start=2026-01-06&end=2026-01-06", "not after"),
        ("end=2001-01-01", "name start and end"),
        ("start=2026-13-01", "month"),
        ("start=2026-02-30", "day"),
        ("start=2026-01-01T25:00Z", "hour"),
        ("start=2026-01-01T10", "a time such as"),
        ("start=yesterday", "a date such as"),
        ("end=0000-01-01", "year"),
    ],
)
def test_an_invalid_period_is_refused_with_the_reason(world, query, word):
    error = only_error(world.call("reader", "GET", f"/v1/usage?{query}"))
    assert (error["status"], error["code"]) == (400, "gsaas.bad-request")
    assert word in error["detail"]


def test_the_command_line_prints_it_for_people_and_for_programs(desk, history):
    period = ("-start=2026-01-05T00:00Z", "-end=2026-01-06T00:00Z")
    status, out, _ = desk.type("usage", *period)
    assert status == 0
    begin, end = (minute(f"2026-01-{day}T00:00:00Z") for day in ("05", "06"))
    assert out.splitlines()[0] == f"from {begin} to {end}"
    assert out.splitlines()[2].split() == ["blue", "1", "12.00", "98304"]
    assert desk.read("usage", *period)["projects"] == [BLUE]
    desk.sit("admin")
    _, out, _ = desk.type("usage", *period, "-f=csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [{k: type(BLUE[k])(v) for k, v in row.items()} for row in rows] == [BLUE, RED]


PRICED = "[usage]\nprices = Quadro M4000:2.50,cpu:0.05\ncurrency = EUR\n"
LATEST = {"OpenStack-API-Version": "gpu-scheduling latest"}


def test_without_prices_nothing_is_said_of_costs(history):
    assert history.call("reader", "GET", DAY, headers=LATEST).json["usage"]["projects"] == [BLUE]


@pytest.mark.parametrize("settings", [PRICED])
def test_usage_costs_what_the_operators_prices_say(history):
    usage = history.call("admin", "GET", DAY, headers=LATEST).json["usage"]
    assert usage["currency"] == "EUR"
    assert [(used["cost"], used["unpriced_gpu_hours"]) for used in usage["projects"]] == [
        ("30.00", 0.0),
        ("15.00", 0.0),
    ]
    assert history.call("reader", "GET", DAY).json["usage"]["projects"] == [BLUE]


@pytest.mark.parametrize("settings", ["[usage]\nprices = NVIDIA A100:2.50\n"])
def test_hours_without_a_price_are_shown_beside_the_cost(desk, history):
    period = ("-start=2026-01-05", "-end=2026-01-06")
    heading, row = desk.type("usage", *period)[1].splitlines()[1:]
    assert heading.split() == [
        *("project", "leases", "GPU-hours", "MiB-hours", "cost", "unpriced"),
    ]
    assert row.split()[-2:] == ["0.00", "12.00"]


@pytest.mark.parametrize("settings", [PRICED])
def test_the_command_line_prints_costs_in_their_currency(desk, history):
    period = ("-start=2026-01-05", "-end=2026-01-06")
    heading, row = desk.type("usage", *period)[1].splitlines()[1:]
    assert heading.endswith("cost (EUR)")
    assert row.split()[-1] == "30.00"
    assert desk.type("usage", *period, "-c=cost", "-f=value")[1] == "30.00\n"


def test_a_price_that_is_no_number_is_refused_at_the_start(tmp_path):
    with pytest.raises(ValueError, match="write it like"):
        World.build(tmp_path, settings="[usage]\nprices = NVIDIA A100:cheap\n")


def test_an_invalid_period_fails_on_the_command_line(desk):
    status, _, err = desk.type("usage", "-start=tomorrowx")
    assert status == 2
    assert err.startswith("gsaas: -start is a date or time such as tomorrow 9:00")


def test_a_period_that_the_api_refuses_is_a_mistake_of_the_command_line(desk):
    status, _, err = desk.type("usage", "-start=+2h")
    assert status == 2, err
