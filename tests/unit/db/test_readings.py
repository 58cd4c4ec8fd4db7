# SPDX-License-Identifier: Apache-2.0
"""Readings are added to the rows of their intervals; tests/services/db repeats these tests on real servers."""

from __future__ import annotations

import datetime
import random

import pytest
from sqlalchemy import func, select

from gsaas.db import readings
from gsaas.db.models import CgpuReadingRow, PathReadingRow, table_of
from gsaas.db.readings import CgpuReading, ClaimedCgpu, PathReading
from gsaas.objects.readings import (
    QUIET_BYTES,
    RESOLUTIONS,
    ROWS,
    WHOLE,
    CgpuInterval,
    PathInterval,
    Use,
    slots_of,
    use_of,
)
from tests.support import rows

NOON = datetime.datetime(2026, 11, 23, 12, 0, 0)


def after(seconds: float) -> datetime.datetime:
    return NOON + datetime.timedelta(seconds=seconds)


def add_cgpu(database, seconds, utilisation=50.0, used_mb=100, lease_id="lease-1", position=0):
    with database.writing() as connection:
        reading = CgpuReading(lease_id, position, utilisation, used_mb)
        readings.add_cgpus(connection, [reading], after(seconds))


def add_path(database, seconds, sent=0, received=0, connections=1, dropped=0, lease_id="lease-1"):
    with database.writing() as connection:
        reading = PathReading(lease_id, sent, received, connections, dropped)
        readings.add_paths(connection, [reading], after(seconds))


def stored(database, lease_id="lease-1") -> readings.Intervals:
    with database.reading() as connection:
        return readings.of_lease(connection, lease_id)


def minutes(database) -> list[CgpuInterval]:
    found = [each for each in stored(database).cgpus if each.resolution == 60]
    return sorted(found, key=lambda each: each.number)


def whole(database) -> CgpuInterval:
    (found,) = (each for each in stored(database).cgpus if each.resolution == WHOLE)
    return found


def whole_path(database) -> PathInterval:
    (found,) = (each for each in stored(database).paths if each.resolution == WHOLE)
    return found


def test_readings_of_one_minute_are_added_up(database):
    add_cgpu(database, 0, 20.0, 100)
    add_cgpu(database, 30, 40.0, 300)
    add_cgpu(database, 59, None, 200)
    (minute,) = minutes(database)
    assert (minute.at, minute.samples, minute.utilisation, minute.used_mb) == (
        *(after(59), 2, 30.0, 300),
    )


def test_the_next_minute_begins_anew(database):
    add_cgpu(database, 0, 20.0, 100)
    add_cgpu(database, 60, 40.0, 50)
    assert [(each.utilisation, each.used_mb) for each in minutes(database)] == [
        (20.0, 100),
        (40.0, 50),
    ]
    (ten,) = (each for each in stored(database).cgpus if each.resolution == 600)
    assert (ten.samples, ten.utilisation, ten.used_mb) == (2, 30.0, 100)


def test_an_interval_takes_the_row_of_one_that_is_over(database):
    add_cgpu(database, 0, 20.0, 100)
    add_cgpu(database, 3600, 40.0, 50)
    (minute,) = minutes(database)
    assert (minute.utilisation, minute.used_mb, minute.at) == (40.0, 50, after(3600))


def test_memory_that_is_not_known_does_not_hide_what_is(database):
    add_cgpu(database, 0, 1.0, None)
    add_cgpu(database, 10, 1.0, 100)
    add_cgpu(database, 20, 1.0, None)
    (minute,) = minutes(database)
    assert minute.used_mb == 100


@pytest.mark.slow
def test_what_the_database_adds_up_is_what_its_readings_say(database):
    """A day and more of random readings, compared with the readings themselves."""
    chance, taken = random.Random(7), []  # noqa: S311
    moment = 0.0
    while moment < 2 * 86400:
        moment += chance.uniform(200, 700)
        taken.append((after(moment), float(chance.randint(0, 100)), chance.randint(0, 1000)))
        add_cgpu(database, moment, *taken[-1][1:])
    expected = {}
    for at, percent, used_mb in taken:
        for slot in slots_of(at):
            number, samples, total, most = expected.get(slot[:2], (None, 0, 0.0, 0))
            if number != slot.number:
                samples, total, most = 0, 0.0, 0
            expected[slot[:2]] = (slot.number, samples + 1, total + percent, max(most, used_mb))
    found = {
        (each.resolution, each.number): (each.samples, each.utilisation_sum, each.used_mb)
        for each in stored(database).cgpus
    }
    assert found == {
        (resolution, number): values
        for (resolution, _), (number, *rest) in expected.items()
        for values in [tuple(rest)]
    }


@pytest.mark.slow
def test_a_cgpu_and_a_path_have_no_more_rows_than_are_stated(database):
    """For more than a day, every half minute at first, so that every slot is used."""
    with database.writing() as connection:
        for step in range(130):
            readings.add_cgpus(connection, [CgpuReading("lease-1", 0, 1.0, 1)], after(60 * step))
            readings.add_paths(connection, [PathReading("lease-1", 1, 1, 1, 1)], after(60 * step))
        for step in range(300):
            at = after(86400 + 600 * step)
            readings.add_cgpus(connection, [CgpuReading("lease-1", 0, 1.0, 1)], at)
            readings.add_paths(connection, [PathReading("lease-1", 1, 1, 1, 1)], at)
    with database.reading() as connection:
        for model in (CgpuReadingRow, PathReadingRow):
            count = connection.scalar(select(func.count()).select_from(table_of(model)))
            assert count is not None
            assert count <= ROWS
            assert count >= 1 + RESOLUTIONS[1].kept


def test_a_report_is_one_statement_however_many_cgpus_it_has(database, monkeypatch):
    with database.writing() as connection:
        executed = []
        monkeypatch.setattr(
            connection, "execute", lambda *arguments: executed.append(arguments), raising=True
        )
        many = [CgpuReading(f"lease-{number}", 0, 1.0, 1) for number in range(16)]
        readings.add_cgpus(connection, many, NOON)
    assert len(executed) == 1
    (_, values) = executed[0]
    assert len(values) == 16 * (1 + len(RESOLUTIONS))


def test_a_cgpu_is_busy_while_kernels_run_or_nobody_knows(database):
    add_cgpu(database, 0, 0.0)
    assert whole(database).busy_at == after(0)
    add_cgpu(database, 60, 0.0)
    assert whole(database).busy_at == after(0)
    add_cgpu(database, 120, 0.5)
    assert whole(database).busy_at == after(120)
    add_cgpu(database, 180, None)
    assert whole(database).busy_at == after(180)
    add_cgpu(database, 240, 0.0)
    assert whole(database).busy_at == after(180)


def test_a_cgpu_of_which_nothing_was_read_for_long_counts_as_in_use(database):
    add_cgpu(database, 0, 1.0)
    add_cgpu(database, 600, 0.0)
    assert whole(database).busy_at == after(0)
    add_cgpu(database, 1260, 0.0)
    assert whole(database).busy_at == after(1260)


def test_a_path_is_busy_when_it_has_carried_more_than_keepalives(database):
    add_path(database, 0)
    add_path(database, 60, sent=QUIET_BYTES)
    assert whole_path(database).busy_at == after(0)
    add_path(database, 120, sent=2 * QUIET_BYTES, received=1)
    assert whole_path(database).busy_at == after(120)
    add_path(database, 180, sent=2 * QUIET_BYTES, received=1)
    assert whole_path(database).busy_at == after(120)
    add_path(database, 240)  # counted anew, on another host
    assert whole_path(database).busy_at == after(240)


def test_the_counters_of_a_path_are_the_last_ones(database):
    add_path(database, 0, 1, 2, 3, 4)
    add_path(database, 20, 2**53, 20, 30, 40)
    assert {
        (each.resolution, each.sent_bytes, each.received_bytes, each.connections)
        for each in stored(database).paths
    } == {(resolution, 2**53, 20, 30) for resolution in (WHOLE, 60, 600)}
    assert whole_path(database).dropped_packets == 40


@pytest.mark.slow
def test_the_newest_readings_are_a_few_rows_of_each_lease(database):
    for step in range(30):
        add_cgpu(database, 60 * step)
        add_path(database, 60 * step)
        add_cgpu(database, 60 * step, lease_id="lease-2")
    with database.reading() as connection:
        found = readings.newest(connection, ["lease-1", "lease-3"], after(60 * 29))
    assert found.keys() == {"lease-1"}
    assert len(found["lease-1"].cgpus) == len(found["lease-1"].paths) == 1 + 5


def test_what_nobody_wrote_for_a_day_is_forgotten(database):
    add_cgpu(database, 0)
    add_path(database, 0)
    add_cgpu(database, 7200, lease_id="lease-2")
    day = readings.KEPT.total_seconds()

    def forget(at: float) -> None:
        more = True
        while more:
            with database.writing() as connection:
                more = readings.forget_some(connection, after(at))

    def intervals(lease_id: str) -> int:
        return sum(each.resolution != WHOLE for each in stored(database, lease_id).cgpus)

    forget(day)
    assert intervals("lease-1")
    forget(day + 60)
    assert not intervals("lease-1")
    assert stored(database).paths == []
    assert intervals("lease-2")
    forget(10 * day)
    assert not intervals("lease-2")


def test_what_sums_up_the_life_of_a_cgpu_stays_until_the_history_forgets_its_lease(database):
    add_cgpu(database, 0, 20.0, 300)
    add_cgpu(database, 86400, 40.0, 100)
    add_cgpu(database, 86460, None, None)
    with database.writing() as connection:
        while readings.forget_some(connection, after(30 * 86400)):
            pass
        found = readings.whole(connection, ["lease-1"])["lease-1"].cgpus
    assert [each.resolution for each in stored(database).cgpus] == [WHOLE]
    assert use_of(found) == Use(30.0, 40.0, 300)
    with database.writing() as connection:
        readings.forget(connection, ["lease-1"])
    assert stored(database) == readings.Intervals([], [])


def test_the_highest_utilisation_is_that_of_its_interval(database):
    for seconds, percent in ((0, 20.0), (10, 90.0), (20, None), (70, 5.0)):
        add_cgpu(database, seconds, percent)
    assert [each.utilisation_max for each in minutes(database)] == [90.0, 5.0]
    assert whole(database).utilisation_max == 90.0


def test_the_cgpus_of_a_host_are_those_whose_gpus_it_has(database):
    with database.write() as session:
        for row in (
            rows.host("gpu1"),
            rows.host("gpu2"),
            rows.lease("lease-1", claimed_at=NOON),
            rows.lease("lease-2"),
        ):
            session.add(row)
        session.flush()
        for row in (rows.gpu("GPU-a"), rows.gpu("GPU-b", host_name="gpu2")):
            session.add(row)
        session.flush()
        for row in (
            rows.claim("lease-1", "GPU-a"),
            rows.claim("lease-2", "GPU-a"),
            rows.claim("lease-1", "GPU-b", position=1),
        ):
            session.add(row)
    with database.reading() as connection:
        assert sorted(readings.claimed_on(connection, "gpu1")) == [
            ClaimedCgpu("lease-1", 0, "GPU-a", NOON),
            ClaimedCgpu("lease-2", 0, "GPU-a", None),
        ]
        assert [each.position for each in readings.claimed_on(connection, "gpu2")] == [1]


def test_a_cgpu_that_moves_claims_both_gpus_since_then(database):
    later = NOON + datetime.timedelta(hours=1)
    with database.write() as session:
        session.add(rows.host("gpu1"))
        session.add(rows.lease("lease-1", claimed_at=NOON, moving_since=later))
        session.flush()
        session.add_all([rows.gpu("GPU-a"), rows.gpu("GPU-b", device_index=1)])
        session.flush()
        session.add(rows.claim("lease-1", "GPU-a"))
        session.add(rows.claim("lease-1", "GPU-b", position=-1))
    with database.reading() as connection:
        assert sorted(readings.claimed_on(connection, "gpu1")) == [
            ClaimedCgpu("lease-1", -1, "GPU-b", later),
            ClaimedCgpu("lease-1", 0, "GPU-a", later),
        ]


@pytest.mark.parametrize("add", [readings.add_cgpus, readings.add_paths])
def test_a_report_without_readings_writes_nothing(database, add):
    with database.writing() as connection:
        add(connection, [], NOON)
    assert stored(database) == readings.Intervals([], [])
