# SPDX-License-Identifier: Apache-2.0
"""What measured values mean."""

from __future__ import annotations

import pytest

from gsaas.prove import path, report, verdicts
from gsaas.prove.verdicts import Gpu, Line, Ran, Verdict

MINE, OTHER = "GPU-a", "GPU-b"
RIGHT = {
    "uuid": MINE,
    "driver": 12080,
    "failed": [],
    "call_s": 50e-6,
    "to_device_mib_s": 900.0,
    "to_host_mib_s": 800.0,
    "matrix_gflops": 100.0,
}
NATIVE = {**RIGHT, "call_s": 1e-6, "matrix_gflops": 150.0}


def found(lines: Line | list[Line]) -> list[tuple[str, str]]:
    """Return the verdicts and figures."""
    several = [lines] if isinstance(lines, Line) else lines
    return [(str(line.verdict), line.figure) for line in several]


@pytest.mark.parametrize(
    ("version", "verdict"),
    [(None, "fail"), ("470.82.01", "fail"), ("570.86.10", "ok"), ("beta", "warn")],
)
def test_an_old_driver_is_a_reason_to_wait(version, verdict):
    assert verdicts.driver(version).verdict == verdict


def test_a_gpu_is_to_be_persistent_shared_and_without_errors():
    good = Gpu(MINE, "H100", 81559, True, "DEFAULT", 0)
    bad = Gpu(MINE, "H100", 81559, False, "EXCLUSIVE_PROCESS", 2)
    silent = Gpu(MINE, "Quadro", 8192)
    assert [v for v, _ in found(verdicts.gpu(good, uses_mps=True))] == ["ok"] * 4
    assert [v for v, _ in found(verdicts.gpu(bad, uses_mps=True))] == ["ok", "warn", "fail", "fail"]
    assert [v for v, _ in found(verdicts.gpu(silent, uses_mps=True))] == ["ok", *["skip"] * 3]


def test_mps_has_to_answer_where_it_limits_memory():
    pipes = {"/run/mps/a": True, "/run/mps/b": False, "/run/mps/c": None}
    assert [v for v, _ in found(verdicts.mps(pipes, limit="mps"))] == ["ok", "fail", "fail"]
    assert [v for v, _ in found(verdicts.mps({}, limit="library"))] == ["skip"]


def test_the_folder_of_mps_has_to_be_trusted_before_anybody_speaks_to_what_listens_there():
    (line,) = verdicts.mps({"/tmp/mps": "/tmp/mps belongs to user 7: start it"}, limit="mps")  # noqa: S108
    assert (line.verdict, line.figure, line.mend) == (
        "fail",
        "/tmp/mps belongs to user 7",  # noqa: S108
        "start it",
    )


def test_ports_of_outgoing_connections_are_not_those_of_daemons():
    assert verdicts.ephemeral_ports((20000, 29999), (32768, 60999)).verdict is Verdict.OK
    assert verdicts.ephemeral_ports((20000, 29999), (1024, 60999)).verdict is Verdict.WARN


def test_what_the_middleware_costs_is_told_against_the_host_itself():
    lines = verdicts.computed("through lupine", Ran(RIGHT), Ran(NATIVE))
    assert found(lines) == [
        ("ok", "right; CUDA 12.8, GPU-a"),
        ("ok", "50 µs, 50.00 of native"),
        ("ok", "900 MiB/s, 1.00 of native"),
        ("ok", "800 MiB/s, 1.00 of native"),
        ("ok", "100 GFLOP/s, 0.67 of native"),
    ]
    slow = verdicts.computed("through lupine", Ran({**RIGHT, "matrix_gflops": 10.0}), Ran(NATIVE))
    assert slow[-1].verdict is Verdict.WARN


def test_a_program_on_another_gpu_than_its_own_is_no_success():
    right, wrong, untold = (
        verdicts.computed("through lupine", Ran({**RIGHT, "uuid": uuid}), on=MINE)
        for uuid in (MINE, OTHER, None)
    )
    assert found(right[1]) == [("ok", MINE)]
    assert found(wrong[1]) == [("fail", OTHER)]
    assert MINE in wrong[1].mend
    assert found(untold[:2]) == [("ok", "right; CUDA 12.8, GPU not known"), ("skip", "-")]


def test_a_wrong_result_is_worse_than_none():
    (wrong,) = verdicts.computed("native", Ran({**RIGHT, "failed": ["a matrix product is wrong"]}))
    (none,) = verdicts.computed("native", Ran(None, "CUDA cannot be used"))
    assert wrong.verdict is none.verdict is Verdict.FAIL
    assert "a matrix product is wrong" in wrong.mend
    assert "CUDA cannot be used" in none.mend


@pytest.mark.parametrize(
    ("over", "verdict"),
    [
        ({"allocated_mb": 1024, "refused": "memory", "out_of_memory": True}, "ok"),
        ({"allocated_mb": 512, "refused": "memory", "out_of_memory": True}, "warn"),
        ({"allocated_mb": 1088, "refused": "memory", "out_of_memory": True}, "warn"),
        ({"allocated_mb": 1344, "refused": "memory", "out_of_memory": True}, "fail"),
        ({"allocated_mb": 2048, "refused": None, "out_of_memory": False}, "fail"),
        ({"allocated_mb": 600, "refused": "lost", "out_of_memory": False}, "fail"),
        ({}, "fail"),
    ],
)
def test_a_limit_holds_if_it_refuses_near_its_value_and_with_the_right_error(over, verdict):
    neighbour = Ran({"rounds": 9, "longest_s": 0.001, "failed": []})
    limit, beside = verdicts.limited(1024, Ran(over), neighbour, way="mps")
    assert (limit.verdict, beside.verdict) == (verdict, Verdict.OK)


def test_a_limit_is_not_judged_on_a_gpu_that_is_full_before_it_is_reached():
    refused = {"refused": "memory", "out_of_memory": True}
    neighbour = Ran({"rounds": 9})

    def judge(allocated: int, free: int) -> Verdict:
        ran = Ran({**refused, "allocated_mb": allocated})
        return verdicts.limited(1024, ran, neighbour, way="mps", free_mb=free)[0].verdict

    assert judge(1024, 2048) is Verdict.OK
    assert judge(1024, 2047) is judge(512, 600) is Verdict.SKIP
    assert judge(1600, 1700) is Verdict.FAIL  # it went far beyond the limit all the same


@pytest.mark.parametrize(
    ("ran", "verdict", "sees"),
    [
        ({"allocated_mb": 272, "refused": "no", "computes": True}, "ok", "out of memory"),
        (
            {"allocated_mb": 272, "refused": "no", "computes": False},
            "ok",
            "the end of its connection",
        ),
        ({"allocated_mb": 272}, "ok", "the end of its connection"),
        ({"allocated_mb": 400, "refused": "no", "computes": True}, "fail", "out of memory"),
        ({"allocated_mb": 128, "refused": "no", "computes": True}, "warn", "out of memory"),
        ({"allocated_mb": 512, "refused": None}, "fail", "no limit"),
    ],
)
def test_a_daemon_of_a_cpu_device_has_its_share_and_what_it_needs_itself(ran, verdict, sees):
    over = Ran({"asked_mb": ran["allocated_mb"] + 16, **ran})
    line = verdicts.limited_by_process("LimitDATA", 256, 384, over)
    assert line.verdict == verdict
    assert line.values == {
        "way": "LimitDATA",
        "share_mb": 256,
        "asked_mb": ran["allocated_mb"] + 16,
        "got_mb": ran["allocated_mb"],
        "beyond_mb": ran["allocated_mb"] - 256,
        "sees": sees,
    }


def test_a_limit_that_was_not_reached_is_not_passed():
    for ran in (Ran(None, "it cannot connect"), Ran({"error": "no TVM"}, "no TVM"), Ran({})):
        line = verdicts.limited_by_process("LimitDATA", 256, 384, ran)
        assert (line.verdict, line.figure) == (Verdict.FAIL, "not measured")


def test_code_in_a_daemons_place_is_ended_at_its_limit_or_has_none():
    ended = Ran({"allocated_mb": 368, "asked_mb": 384})
    assert verdicts.limited_by_group("MemoryMax", 256, 384, ended).verdict is Verdict.OK
    endless = Ran({"allocated_mb": 768, "asked_mb": 768, "refused": None})
    line = verdicts.limited_by_group("MemoryMax", 256, 384, endless)
    assert (line.verdict, line.values["sees"]) == (Verdict.FAIL, "no limit")


def test_a_neighbour_that_stops_is_a_reason_not_to_share():
    for neighbour in (
        Ran({"rounds": 3, "failed": ["wrong"]}),
        Ran(None, "illegal access"),
        Ran({}),
    ):
        assert verdicts.undisturbed("neighbour", neighbour).verdict is Verdict.FAIL


def test_a_daemon_sees_its_own_gpu_only():
    own = {"cuda": [MINE], "nvml": [MINE], "openable": {"nvidia0": True, "nvidiactl": True}}
    host = {"cuda": [MINE], "nvml": [MINE, OTHER], "openable": {"nvidia0": True, "nvidia1": True}}
    assert [v for v, _ in found(verdicts.confined(Ran(own), MINE, own_devices=True))] == ["ok"] * 3
    seen = verdicts.confined(Ran(host), MINE, own_devices=True)
    assert [v for v, _ in found(seen)] == ["ok", "fail", "fail"]
    chosen = verdicts.confined(Ran(host), MINE, own_devices=False)
    assert [v for v, _ in found(chosen)] == ["ok", "warn", "warn"]


def test_memory_that_stays_in_use_is_to_be_mended():
    assert verdicts.freed("end", 10, 10, 0.2).verdict is Verdict.OK
    assert verdicts.freed("end", 10, 500, None).figure == "490 MiB still in use"
    assert verdicts.freed("end", None, None, 0.0).verdict is Verdict.SKIP


def test_equal_pointers_of_two_daemons_are_counted():
    first, second = {"pointers": {"0": [1, 2, 3]}}, {"pointers": {"0": [3, 4, 5]}}
    assert verdicts.pointers([first, second]).figure == "1 are equal"
    assert verdicts.pointers([first, {"pointers": {"0": [7]}}]).verdict is Verdict.OK
    assert verdicts.pointers([first, {}]).verdict is Verdict.SKIP


def test_what_could_not_be_tried_is_not_passed():
    assert verdicts.suspended("570.86", False, None).verdict is Verdict.SKIP
    assert verdicts.suspended("525.60", True, None).verdict is Verdict.SKIP
    assert verdicts.suspended("570.86", True, None).verdict is Verdict.OK
    assert verdicts.suspended("570.86", True, "not supported").verdict is Verdict.WARN


def test_the_report_ends_with_what_to_mend_and_the_document_has_everything():
    lines = [
        verdicts.ok("driver", "570", version="570"),
        verdicts.warn("MTU", "1500", "set 9000"),
        verdicts.fail("MPS", "none", "start it"),
        verdicts.skip("NVML", "it is not there"),
    ]
    assert report.table(lines[:1]).split() == ["ok", "driver", "570"]
    assert report.conclusion(lines).splitlines() == [
        "To mend before tenants come:",
        "  - MPS (none): start it",
        "",
        "Better to mend:",
        "  - MTU (1500): set 9000",
        "",
        "Not checked:",
        "  - NVML: it is not there",
        "",
        "1 ok, 1 warn, 1 fail, 1 skip",
    ]
    document = report.document(lines, {"host": "gpu1"})
    assert document["host"] == "gpu1"
    assert document["lines"][0] == {
        "name": "driver",
        "verdict": "ok",
        "figure": "570",
        "mend": None,
        "values": {"version": "570"},
    }
    assert verdicts.failed(lines)


def test_the_way_is_compared_with_what_its_gpu_host_measured():
    lines = verdicts.computed("native", Ran(NATIVE))
    assert path.native_of(report.document(lines, {})).result["matrix_gflops"] == 150.0
    assert path.native_of(None) is None


def test_a_host_with_nvswitches_and_without_its_fabric_manager_is_told_what_to_start():
    ran = Ran({"error": "x"}, "cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802)")
    (line,) = verdicts.computed("native", ran)
    assert "systemctl enable --now nvidia-fabricmanager" in line.mend
