# SPDX-License-Identifier: Apache-2.0
"""The inventory follows what monitors report, and never takes from a lease what it holds."""

from __future__ import annotations

import datetime

import pytest
from sqlalchemy import func, select

from gsaas import exceptions
from gsaas.db import gpus, hosts
from gsaas.db.database import Database
from gsaas.db.gpus import NOT_REPORTED
from gsaas.db.models import ClaimRow, GpuReadingRow, GpuRow, HostRow
from gsaas.objects.gpu_report import GpuInfo, GpuProcess, Reading, XidError
from tests.support import rows


def info(uuid: str, device_index: int = 0, **changes: object) -> GpuInfo:
    values = {"model": "NVIDIA A100-PCIE-40GB", "memory_mb": 40960, "daemon_port": 8308}
    return GpuInfo(uuid, device_index, **{**values, **changes})


def report(database: Database, *infos: GpuInfo, host: str = "gpu1") -> None:
    with database.write() as session:
        gpus.register(session, host, "192.0.2.1", infos)


def hold(database: Database, uuid: str, memory_mb: int, mode: str = "shared") -> None:
    """Have a lease of its own hold so much of a GPU."""
    with database.write() as session:
        lease_id = f"lease-{uuid}"
        asked = memory_mb if mode == "shared" else None
        session.add(rows.lease(lease_id, mode=mode, memory_mb=asked))
        session.flush()
        gpu = session.get_one(GpuRow, uuid)
        gpu.used_mb += memory_mb
        gpu.exclusive_lease_id = None if mode == "shared" else lease_id
        session.flush()
        session.add(rows.claim(lease_id, uuid, memory_mb=memory_mb))


def let_go(database: Database, uuid: str) -> None:
    with database.write() as session:
        gpu = session.get_one(GpuRow, uuid)
        gpu.used_mb, gpu.exclusive_lease_id = 0, None
        session.execute(ClaimRow.__table__.delete().where(ClaimRow.gpu_uuid == uuid))


def inventory(database: Database) -> dict[str, GpuRow]:
    with database.read() as session:
        return {gpu.uuid: gpu for gpu in gpus.page(session, limit=100)}


def places(database: Database) -> dict[str, tuple[str, int]]:
    return {uuid: (gpu.host_name, gpu.device_index) for uuid, gpu in inventory(database).items()}


def trace(database: Database) -> tuple[int, int]:
    """The count and sum of generations, by which caches notice a change."""
    with database.read() as session:
        return tuple(session.execute(select(func.count(), func.sum(GpuRow.generation))).one())


# Reports


def test_the_first_report_makes_the_host_and_its_gpus(database: Database):
    report(database, info("GPU-a", 0), info("MIG-b", 1, memory_mb=4864, parent_uuid="GPU-c"))
    with database.read() as session:
        host = hosts.get(session, "gpu1")
    assert host.gpu_address == "192.0.2.1"
    assert host.monitor_seen_at is not None
    assert [(g.uuid, g.memory_mb, g.used_mb, g.disabled, g.parent_uuid) for g in host.gpus] == [
        ("GPU-a", 40960, 0, False, None),
        ("MIG-b", 4864, 0, False, "GPU-c"),
    ]


def test_a_report_of_nothing_new_only_says_that_the_monitor_lives(database: Database):
    report(database, info("GPU-a"))
    with database.write() as session:
        session.get_one(HostRow, "gpu1").monitor_seen_at = rows.second(0)
    before = trace(database)
    report(database, info("GPU-a"))
    assert trace(database) == before
    with database.read() as session:
        assert hosts.get(session, "gpu1").monitor_seen_at > rows.second(0)


@pytest.mark.parametrize(
    "changes",
    [{"memory_mb": 81920}, {"daemon_port": 9000}, {"model": "H200"}, {"parent_uuid": "GPU-p"}],
)
def test_what_a_monitor_says_of_a_gpu_replaces_what_was_known(database: Database, changes: dict):
    report(database, info("GPU-a"))
    generation = inventory(database)["GPU-a"].generation
    report(database, info("GPU-a", **changes))
    gpu = inventory(database)["GPU-a"]
    assert {column: getattr(gpu, column) for column in changes} == changes
    assert gpu.generation == generation + 1


def test_two_gpus_may_change_places(database: Database):
    report(database, info("GPU-a", 0), info("GPU-b", 1))
    report(database, info("GPU-a", 1), info("GPU-b", 0))
    assert places(database) == {"GPU-a": ("gpu1", 1), "GPU-b": ("gpu1", 0)}


def test_a_gpu_moves_to_another_host_with_the_consent_of_an_operator_only(database: Database):
    report(database, info("GPU-a"))
    report(database, info("GPU-b"), host="gpu2")
    report(database, info("GPU-b", 0), info("GPU-a", 1), host="gpu2")
    assert places(database) == {"GPU-a": ("gpu1", 0), "GPU-b": ("gpu2", 0)}
    with database.write() as session:
        gpus.adopt(session, "GPU-a", "gpu2")
    report(database)
    report(database, info("GPU-b", 0), info("GPU-a", 1), host="gpu2")
    assert places(database) == {"GPU-a": ("gpu2", 1), "GPU-b": ("gpu2", 0)}


def test_a_gpu_that_is_gone_is_forgotten(database: Database):
    report(database, info("GPU-a", 0), info("GPU-b", 1))
    report(database, info("GPU-b", 0))
    assert places(database) == {"GPU-b": ("gpu1", 0)}


def test_a_gpu_that_is_gone_but_claimed_stays_and_is_not_offered(database: Database):
    report(database, info("GPU-a", 0))
    hold(database, "GPU-a", 2048)
    generation = inventory(database)["GPU-a"].generation
    report(database)
    gpu = inventory(database)["GPU-a"]
    assert (gpu.disabled, gpu.withdrawn_reason) == (False, NOT_REPORTED)
    assert gpu.generation > generation
    before = trace(database)
    report(database)
    assert trace(database) == before


def test_a_gpu_that_comes_back_is_offered_again(database: Database):
    report(database, info("GPU-a"))
    hold(database, "GPU-a", 2048)
    report(database)
    report(database, info("GPU-a"))
    gpu = inventory(database)["GPU-a"]
    assert (gpu.withdrawn_reason, gpu.used_mb) == (None, 2048)
    assert (gpu.host_name, gpu.device_index) == ("gpu1", 0)


def test_a_gpu_that_is_gone_is_forgotten_when_its_last_lease_lets_go(database: Database):
    report(database, info("GPU-a"))
    hold(database, "GPU-a", 2048)
    report(database)
    let_go(database, "GPU-a")
    report(database)
    assert inventory(database) == {}


def test_a_new_gpu_takes_the_slot_of_one_that_is_still_claimed(database: Database):
    report(database, info("GPU-a", 0), info("GPU-b", 1))
    hold(database, "GPU-a", 2048)
    hold(database, "GPU-b", 2048)
    report(database, info("GPU-c", 0), info("GPU-d", 1))
    indexes = {uuid: index for uuid, (_, index) in places(database).items()}
    assert (indexes["GPU-c"], indexes["GPU-d"]) == (0, 1)
    assert indexes["GPU-a"] < 0
    assert indexes["GPU-b"] < 0


def test_an_operators_reason_outlives_absence(database: Database):
    report(database, info("GPU-a"))
    hold(database, "GPU-a", 2048)
    with database.write() as session:
        gpus.set_disabled(session, "GPU-a", True, "XID 79, to be replaced")
    report(database)
    report(database, info("GPU-a"))
    gpu = inventory(database)["GPU-a"]
    assert (gpu.disabled, gpu.disabled_reason) == (True, "XID 79, to be replaced")


def test_memory_that_shrank_below_what_is_claimed_counts_as_full_until_it_is_free(
    database: Database,
):
    report(database, info("GPU-a", memory_mb=40960))
    hold(database, "GPU-a", 30000)
    report(database, info("GPU-a", memory_mb=20000))
    assert inventory(database)["GPU-a"].memory_mb == 30000
    let_go(database, "GPU-a")
    report(database, info("GPU-a", memory_mb=20000))
    assert inventory(database)["GPU-a"].memory_mb == 20000


def test_a_gpu_held_whole_keeps_its_size_until_it_is_free(database: Database):
    report(database, info("GPU-a", memory_mb=40960))
    hold(database, "GPU-a", 40960, mode="exclusive")
    report(database, info("GPU-a", memory_mb=81920))
    assert inventory(database)["GPU-a"].memory_mb == 40960
    let_go(database, "GPU-a")
    report(database, info("GPU-a", memory_mb=81920))
    assert inventory(database)["GPU-a"].memory_mb == 81920


def test_every_change_of_the_inventory_shows_in_count_and_sum(database: Database):
    """Also one GPU in the place of another, which leaves the count as it was."""
    report(database, info("GPU-a"), info("GPU-b", 1))
    seen = {trace(database)}
    for infos in (
        [info("GPU-a"), info("GPU-c", 1)],
        [info("GPU-a")],
        [info("GPU-a", memory_mb=81920)],
        [info("GPU-a", 1, memory_mb=81920)],
        [],
    ):
        report(database, *infos)
        assert trace(database) not in seen
        seen.add(trace(database))


# GPUs that fail


def condition(database: Database, uuid: str = "GPU-a") -> tuple[str | None, bool]:
    gpu = inventory(database)[uuid]
    return gpu.withdrawn_reason, gpu.awaits_operator


def fatal(second: int, reason: str = "XID 79", **changes: object) -> GpuInfo:
    """A GPU that had a fatal error at that second."""
    changes = {"fatal_error": reason, "fatal_error_at": rows.second(second), **changes}
    return info("GPU-a", **changes)


def enable(database: Database, uuid: str = "GPU-a") -> None:
    with database.write() as session:
        gpus.set_disabled(session, uuid, False)


def test_a_gpu_that_fails_is_withdrawn_until_it_answers(database: Database):
    report(database, info("GPU-a"), info("GPU-b", 1))
    hold(database, "GPU-a", 2048)
    seen = {trace(database)}
    report(database, info("GPU-a", withdrawn="it is lost"), info("GPU-b", 1))
    assert condition(database) == ("it is lost", False)
    assert condition(database, "GPU-b") == (None, False)
    assert inventory(database)["GPU-a"].used_mb == 2048
    assert trace(database) not in seen
    seen.add(trace(database))
    report(database, info("GPU-a", withdrawn="it is lost"), info("GPU-b", 1))
    assert trace(database) in seen
    report(database, info("GPU-a"), info("GPU-b", 1))
    assert condition(database) == (None, False)
    assert trace(database) not in seen


def test_a_gpu_may_be_broken_when_it_is_first_seen(database: Database):
    report(database, info("GPU-a", withdrawn="it is lost"))
    assert condition(database) == ("it is lost", False)


def test_after_a_fatal_error_a_gpu_waits_for_an_operator(database: Database):
    report(database, info("GPU-a"))
    report(database, fatal(1))
    assert condition(database) == ("XID 79", True)
    report(database, fatal(1))
    report(database, info("GPU-a"))  # its monitor has started anew, and knows of nothing
    assert condition(database) == ("XID 79", True)
    enable(database)
    assert condition(database) == (None, False)


def test_the_same_fatal_error_is_not_held_against_a_gpu_twice(database: Database):
    report(database, fatal(1))
    enable(database)
    report(database, fatal(1))
    assert condition(database) == (None, False)
    before = trace(database)
    report(database, fatal(1))
    assert trace(database) == before
    report(database, fatal(2))
    assert condition(database) == ("XID 79", True)


def test_the_last_fatal_error_is_the_reason(database: Database):
    report(database, fatal(1))
    report(database, fatal(2, "XID 48"))
    assert condition(database) == ("XID 48", True)


def test_a_gpu_that_is_enabled_and_still_fails_is_withdrawn_again(database: Database):
    report(database, fatal(1, withdrawn="it is lost"))
    assert condition(database) == ("XID 79", True)
    enable(database)
    report(database, fatal(1, withdrawn="it is lost"))
    assert condition(database) == ("it is lost", False)


def test_to_disable_a_gpu_is_not_to_have_seen_to_its_error(database: Database):
    report(database, fatal(1))
    with database.write() as session:
        gpus.set_disabled(session, "GPU-a", True, "to be replaced")
    assert condition(database) == ("XID 79", True)


@pytest.mark.parametrize("operators", ["disabled", "failed"])
def test_a_gpu_that_an_operator_is_to_see_to_is_not_forgotten(database: Database, operators: str):
    report(database, fatal(1) if operators == "failed" else info("GPU-a"))
    if operators == "disabled":
        with database.write() as session:
            gpus.set_disabled(session, "GPU-a", True, "smells")
    report(database)
    assert "GPU-a" in inventory(database)
    before = trace(database)
    report(database)
    assert trace(database) == before
    report(database, info("GPU-a"))
    gpu = inventory(database)["GPU-a"]
    assert (gpu.disabled, gpu.awaits_operator) == (operators == "disabled", operators == "failed")
    report(database)
    enable(database)
    report(database)
    assert inventory(database) == {}


def test_a_monitor_that_sees_nothing_makes_nobody_forget(database: Database):
    def look(blind: str | None, *infos: GpuInfo) -> None:
        with database.write() as session:
            gpus.register(session, "gpu1", "192.0.2.1", infos, blind=blind)

    look(None, info("GPU-a"), info("GPU-b", 1))
    hold(database, "GPU-b", 2048)
    look("the driver is gone")
    for uuid in ("GPU-a", "GPU-b"):
        assert condition(database, uuid) == ("the driver is gone", False)
    assert places(database) == {"GPU-a": ("gpu1", 0), "GPU-b": ("gpu1", 1)}
    before = trace(database)
    look("the driver is gone")
    assert trace(database) == before
    look(None, info("GPU-a"), info("GPU-b", 1))
    assert condition(database) == condition(database, "GPU-b") == (None, False)


def test_totals_offer_nothing_of_a_gpu_that_has_failed(database: Database):
    report(database, info("GPU-a"), info("GPU-b", 1, withdrawn="it is lost"))
    with database.read() as session:
        totals = gpus.totals(session)
    assert (totals["gpus"], totals["idle"], totals["free_mb"]) == (2, 1, 40960)


# What is read of them


def read(database: Database, **readings: Reading) -> None:
    with database.write() as session:
        gpus.register(
            session,
            "gpu1",
            "192.0.2.1",
            [info("GPU-a"), info("GPU-b", 1)],
            readings={name.replace("_", "-"): reading for name, reading in readings.items()},
        )


def readings(database: Database) -> dict[str, GpuReadingRow]:
    with database.read() as session:
        return gpus.readings(session, ["GPU-a", "GPU-b", "GPU-c"])


def test_what_was_read_last_is_kept_and_changes_no_generation(database: Database):
    read(database, GPU_a=Reading(used_mb=1, utilisation=50.0))
    before = trace(database)
    error = XidError(rows.second(1), 31, False)
    read(
        database,
        GPU_a=Reading(
            used_mb=2,
            mean_utilisation=12.5,
            temperature_c=40,
            power_w=250.5,
            processes=[GpuProcess(17, "python", None)],
            xid_errors=[error],
        ),
    )
    assert trace(database) == before
    (reading,) = readings(database).values()
    assert (reading.gpu_uuid, reading.used_mb, reading.utilisation) == ("GPU-a", 2, None)
    assert (reading.mean_utilisation, reading.temperature_c, reading.power_w) == (12.5, 40, 250.5)
    assert reading.processes == [{"pid": 17, "name": "python", "used_mb": None}]
    assert reading.xid_errors == [{"at": "2026-01-01T00:00:01", "xid": 31, "fatal": False}]
    assert reading.at > rows.second(0)


def test_a_gpu_that_was_not_read_keeps_its_last_reading(database: Database):
    read(database, GPU_a=Reading(used_mb=1), GPU_b=Reading(used_mb=2))
    read(database, GPU_b=Reading(used_mb=3))
    found = readings(database)
    assert (found["GPU-a"].used_mb, found["GPU-b"].used_mb) == (1, 3)


def test_a_reading_of_a_gpu_that_is_not_reported_is_not_kept(database: Database):
    read(database, GPU_c=Reading(used_mb=1))
    assert readings(database) == {}


def test_a_gpu_that_is_forgotten_takes_its_reading_along(database: Database):
    read(database, GPU_a=Reading(used_mb=1))
    report(database)
    assert readings(database) == {}


# Reading, disabling


def test_pages_of_gpus_follow_their_uuids(database: Database):
    report(database, *(info(f"GPU-{letter}", i) for i, letter in enumerate("cab")))
    with database.read() as session:
        first = [gpu.uuid for gpu in gpus.page(session, limit=2)]
        second = [gpu.uuid for gpu in gpus.page(session, limit=2, marker=first[-1])]
    assert (first, second) == (["GPU-a", "GPU-b"], ["GPU-c"])


def test_a_disabled_gpu_says_why_and_its_cache_entry_is_stale(database: Database):
    report(database, info("GPU-a"))
    generation = inventory(database)["GPU-a"].generation
    with database.write() as session:
        gpus.set_disabled(session, "GPU-a", True, "being cleaned")
    gpu = inventory(database)["GPU-a"]
    assert (gpu.disabled, gpu.disabled_reason) == (True, "being cleaned")
    assert gpu.generation == generation + 1
    with database.write() as session:
        gpus.set_disabled(session, "GPU-a", False)
    gpu = inventory(database)["GPU-a"]
    assert (gpu.disabled, gpu.disabled_reason) == (False, None)
    assert gpu.generation == generation + 2


def test_a_gpu_that_is_not_there_is_named(database: Database):
    with database.write() as session:
        with pytest.raises(exceptions.NotFound, match="there is no GPU GPU-z"):
            gpus.get(session, "GPU-z")
        with pytest.raises(exceptions.NotFound, match="there is no GPU GPU-z"):
            gpus.set_disabled(session, "GPU-z", True)


def test_totals_of_an_empty_cloud_are_zero(database: Database):
    with database.read() as session:
        assert gpus.totals(session) == {
            "gpus": 0,
            "memory_mb": 0,
            "free_mb": 0,
            "idle": 0,
            "hosts": 0,
        }


def test_totals_own_everything_and_offer_what_is_not_disabled(database: Database):
    report(database, info("GPU-a", 0), info("GPU-b", 1), info("GPU-c", 2), host="gpu1")
    report(database, info("GPU-d", 0), host="gpu2")
    report(database, host="gpu3")
    hold(database, "GPU-a", 960)
    with database.write() as session:
        gpus.set_disabled(session, "GPU-c", True, "being cleaned")
        hosts.set_disabled(session, "gpu2", True, "being moved")
    with database.read() as session:
        assert gpus.totals(session) == {
            "gpus": 4,
            "memory_mb": 4 * 40960,
            "free_mb": 40000 + 40960,
            "idle": 1,
            "hosts": 2,
        }


# What is new


def in_time(database: Database, *infos: GpuInfo) -> bool:
    """Report as a monitor does that reports every 10 s; return whether more GPUs may be on offer."""
    with database.write() as session:
        return gpus.register(session, "gpu1", "192.0.2.1", infos, interval=10.0)


def test_only_a_report_that_may_offer_more_is_news(database: Database):
    assert in_time(database, info("GPU-a"))
    assert not in_time(database, info("GPU-a"))
    assert in_time(database, info("GPU-a", withdrawn="it fell off the bus"))
    assert in_time(database, info("GPU-a"))
    assert not in_time(database, info("GPU-a"))


def test_the_report_of_a_host_that_may_have_counted_as_silent_is_news(database: Database):
    in_time(database, info("GPU-a"))
    with database.write() as session:
        hosts.get(session, "gpu1").monitor_seen_at -= datetime.timedelta(seconds=36)
    assert in_time(database, info("GPU-a"))
