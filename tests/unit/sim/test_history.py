# SPDX-License-Identifier: Apache-2.0
"""Histories as files: our own format, and others' that are imported."""

from __future__ import annotations

import gzip
import io
import json
import re
from pathlib import Path

import pytest

from gsaas.sim import history, importers
from gsaas.sim.history import Demand, HistoryError

TWO = [
    Demand(0, 0, 3600, 2, "shared", 2048, "physics"),
    Demand(1, 12.5, 600, 1, "exclusive", None, "chemistry"),
    Demand(2, 31_536_000.123456, 86_400.5, 2, "exclusive", None, "", "H200", "9.0", hosts="one"),
    Demand(3, 31_536_001.123456, 1 / 3, 1, "shared", 1, locality="local", consumer_host="gpu1"),
]
FORMULA = Demand(0, 1, 1, 1, "exclusive", None, "=1+1", "@SUM(A1)", host="'=1")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "history"
    path.write_text(text)
    return path


def test_what_is_written_is_read_again(tmp_path: Path):
    file = io.StringIO()
    history.write(file, TWO)
    assert history.read(written(tmp_path, file.getvalue())) == TWO


def test_no_text_of_a_tenant_is_a_formula_of_a_spreadsheet(tmp_path: Path):
    file = io.StringIO()
    history.write(file, [FORMULA])
    assert file.getvalue().splitlines()[1] == "1,1,1,exclusive,,'=1+1,'@SUM(A1),,,,''=1,"
    assert history.read(written(tmp_path, file.getvalue())) == [FORMULA]


def test_seconds_are_exact_after_years():
    file = io.StringIO()
    history.write(file, [Demand(0, 31_536_000.123456, 86_400.5, 1, "exclusive", None)])
    assert "\n31536000.123456,86400.5,1," in file.getvalue()


def test_requests_come_in_the_order_of_their_arrival(tmp_path: Path):
    path = written(
        tmp_path, "arrival,duration,count,mode,memory_mb\n9,1,1,exclusive,\n3,1,2,exclusive,\n"
    )
    assert [(one.id, one.arrival, one.count) for one in history.read(path)] == [
        (0, 3, 2),
        (1, 9, 1),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0,1,1,borrowed,", "mode: it is shared or exclusive, not 'borrowed'"),
        ("0,1,1,shared,", "memory_mb: it is given in shared mode, and only there"),
        ("0,1,1,exclusive,5", "memory_mb: it is given in shared mode, and only there"),
        ("0,1,1,shared,0", "memory_mb: a cGPU cannot have 0 MiB"),
        ("0,1,0,exclusive,", "count: 0 cGPUs cannot be asked for"),
        ("0,1,1.5,exclusive,", "count: '1.5' is not a whole number"),
        ("0,1,10000000000,exclusive,", "count: 10000000000 is more than 1,000,000,000"),
        ("0,0,1,exclusive,", "duration: it is more than 0"),
        ("-1,1,1,exclusive,", "arrival: it is not before 0"),
        ("0,1,1,exclusive,,,,ninety", "capability: 'ninety' is not a compute capability"),
        ("0,1,1,exclusive,,,,,nearby", "locality: locality is 'nearby'"),
        ("soon,1,1,exclusive,", "arrival: 'soon' is not a number"),
        ("nan,1,1,exclusive,", "arrival: nan is not a number of seconds up to"),
        ("0,inf,1,exclusive,", "duration: inf is not a number of seconds up to"),
        ("1e300,1,1,exclusive,", "arrival: 1e300 is not a number of seconds up to"),
        ("0,1", "count: '' is not a whole number"),
    ],
)
def test_a_line_that_makes_no_sense_is_named(tmp_path: Path, line: str, reason: str):
    header = "arrival,duration,count,mode,memory_mb,project,model,capability,locality"
    path = written(tmp_path, f"{header}\n1,1,1,exclusive,\n{line}\n")
    with pytest.raises(HistoryError, match=f"^{path}, line 3, column {re.escape(reason)}"):
        history.read(path)


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: Path):
    path = tmp_path / "history"
    path.write_text("arrival,duration,count,mode\n0,1,1,exclusive\n", encoding="utf-8-sig")
    assert history.read(path) == [Demand(0, 0, 1, 1, "exclusive", None)]


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("swf", " 1 nan 5 60 4 -1 -1 4 -1 -1 1 7\n", "line 1, column 2: nan is not a number"),
        ("swf", " 1 0 5 60 4 -1\n", "line 1 has 6 columns and not at least 12"),
        (
            "openb",
            "num_gpu,gpu_milli,creation_time,deletion_time\n1,1000,0,9\n1,1000,1e300,\n",
            "line 3, column creation_time: 1e300 is not a number of seconds",
        ),
        ("openb", "num_gpu,gpu_milli\n1,1000\n", "it has no creation_time"),
        ("leases", '{"leases": [{}]}', "it has no released_at"),
        ("leases", '[\n{"a": nan}]', "line 2 column 7"),
    ],
)
def test_what_is_wrong_with_another_format_is_named(tmp_path: Path, kind, text, reason):
    with pytest.raises(HistoryError, match=f"history is not in the format {kind}: .*{reason}"):
        importers.read(kind, written(tmp_path, text))


LEASE = {
    "created_at": "2026-01-01T00:00:00+00:00",
    "released_at": "2026-01-01T00:01:00+00:00",
    "project_id": "p",
    "cgpus": {"count": 2, "mode": "shared", "memory_mb": 512},
}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"released_at": 5}, "lease 2, released_at: 5 is not a time"),
        ({"created_at": "soon"}, "lease 2, created_at: 'soon' is not a time"),
        (
            {"cgpus": {"count": "two", "mode": "shared", "memory_mb": 1}},
            "lease 2, cgpus.count: 'two' is not a whole number",
        ),
        (
            {"cgpus": {"count": float("nan"), "mode": "shared", "memory_mb": 1}},
            "lease 2, cgpus.count: nan is not a whole number",
        ),
        (
            {"cgpus": {"count": 1, "mode": "shared", "memory_mb": float("inf")}},
            "lease 2, cgpus.memory_mb: inf is not a whole number",
        ),
        ({"timings": {"queue": float("nan")}}, "lease 2, timings.queue: nan is not a number of s"),
        ({"cgpus": 3}, "'int' object is not subscriptable"),
    ],
)
def test_what_is_wrong_with_a_lease_is_named(tmp_path: Path, changes, reason: str):
    path = written(tmp_path, json.dumps([LEASE, {**LEASE, **changes}]))
    with pytest.raises(HistoryError, match="history is not in the format leases: .*" + reason):
        importers.read("leases", path)


def test_a_line_with_more_columns_than_the_first_is_named(tmp_path: Path):
    """As with a decimal comma, which would shift all that follows."""
    text = "arrival,duration,count,mode\n0,1,1,exclusive\n0,5,1,1,exclusive\n"
    with pytest.raises(HistoryError, match="history, line 3 has more columns than the first"):
        history.read(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("arrival,duration,count,mode\n", " contains no request"),
        ('arrival,duration,count,mode\n0,1,1,"exclusive\n', ", line 2: unexpected end of data"),
    ],
)
def test_a_history_that_is_empty_or_ends_in_the_middle_is_named(tmp_path: Path, text, reason: str):
    path = written(tmp_path, text)
    with pytest.raises(HistoryError, match=f"^{path}{reason}"):
        history.read(path)


def test_a_history_may_have_other_line_ends_and_another_order_of_columns(tmp_path: Path):
    path = tmp_path / "history"
    path.write_bytes(b"mode,project,count,arrival,duration\r\nexclusive,a,1,0,5\r\n\r\n")
    assert history.read(path) == [Demand(0, 0, 5, 1, "exclusive", None, "a")]


def test_a_whole_number_may_be_written_as_programs_write_columns_with_empty_fields(tmp_path: Path):
    path = written(
        tmp_path,
        "arrival,duration,count,mode,memory_mb\n0.0,3600.0,2.0,shared,2048.0\n1.0,60.0,1.0,exclusive,\n",
    )
    assert history.read(path) == [
        Demand(0, 0, 3600, 2, "shared", 2048),
        Demand(1, 1, 60, 1, "exclusive", None),
    ]


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path):
    path = tmp_path / "history"
    path.write_bytes(
        b"arrival,duration,count,mode,memory_mb,project\n"
        b"0,1,1,exclusive,,a\n0,1,1,exclusive,,universit\xe9\n"
    )
    with pytest.raises(HistoryError, match=f"^{path}, line 3 is not in UTF-8; iconv "):
        history.read(path)


PACKED = {
    "csv": "arrival,duration,count,mode\n0,60,4,exclusive\n",
    "swf": "1 0 10 60 4 -1 -1 4 3600 -1 1 -1 2 -1 1 0 -1 -1\n",
    "openb": "num_gpu,gpu_milli,creation_time,deletion_time\n4,1000,0,60\n",
    "leases": json.dumps(
        [
            {
                "created_at": "2026-01-01T00:00:00Z",
                "released_at": "2026-01-01T00:01:00Z",
                "project_id": "",
                "cgpus": {"count": 4, "mode": "exclusive", "memory_mb": None},
            }
        ]
    ),
}


@pytest.mark.parametrize("kind", importers.FORMATS)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_every_format_is_read_packed_with_gzip_with_a_byte_order_mark_and_either_line_end(
    tmp_path: Path, kind: str, ends: str
):
    content = PACKED[kind].replace("\n", ends).encode("utf-8-sig")
    for packed in (content, gzip.compress(content)):
        path = tmp_path / "history"
        path.write_bytes(packed)
        assert importers.read(kind, path) == ([Demand(0, 0, 60, 4, "exclusive", None)], {})


@pytest.mark.parametrize("kept", [12, 40, -9])
def test_a_packed_file_that_is_not_whole_cannot_be_read(tmp_path: Path, kept: int):
    path = tmp_path / "history"
    path.write_bytes(gzip.compress(PACKED["csv"].encode())[:kept])
    with pytest.raises(HistoryError, match=f"^{path} cannot be read: "):
        history.read(path)


def test_a_missing_column_is_named(tmp_path: Path):
    with pytest.raises(HistoryError, match="no column duration, mode"):
        history.read(written(tmp_path, "arrival,count\n1,1\n"))


def test_the_standard_workload_format(tmp_path: Path):
    """Comments, a job that never ran, and two that did, the first of which becomes the beginning."""
    text = """; Computer: an SP2
  1  100  5  60  4 -1 -1  4  -1 -1 1  7 1 1 -1 -1 -1 -1
  2  130  0  -1  4 -1 -1  4  -1 -1 0  7 1 1 -1 -1 -1 -1
  3  160  0  30  1 -1 -1  1  -1 -1 1  8 1 1 -1 -1 -1 -1
"""
    assert importers.read("swf", written(tmp_path, text)).demands == [
        Demand(0, 0, 60, 4, "exclusive", None, "7"),
        Demand(1, 60, 30, 1, "exclusive", None, "8"),
    ]


def swf(tmp_path: Path, *lines: str) -> importers.Imported:
    return importers.read("swf", written(tmp_path, "".join(f"{line}\n" for line in lines)))


def test_a_checkpointed_job_counts_once(tmp_path: Path):
    """Two parts of a job that has a line for the whole of it, and one of a job that has none."""
    demands, left_out = swf(
        tmp_path,
        "1 0 10 300 4 -1 -1 4 3600 -1 1 5 2 -1 1 0 -1 -1",
        "1 0 10 100 4 -1 -1 4 3600 -1 2 5 2 -1 1 0 -1 -1",
        "1 0 50 200 4 -1 -1 4 3600 -1 3 5 2 -1 1 0 -1 -1",
        "2 7 50 200 8 -1 -1 8 3600 -1 4 6 2 -1 1 0 -1 -1",
    )
    assert demands == [
        Demand(0, 0, 300, 4, "exclusive", None, "5"),
        Demand(1, 7, 200, 8, "exclusive", None, "6"),
    ]
    assert left_out == {"parts of a checkpointed job, which counts as a whole": 2}


def test_the_parts_of_a_job_count_if_its_run_time_as_a_whole_is_not_known(tmp_path: Path):
    demands, left_out = swf(
        tmp_path,
        "1 0 10 -1 4 -1 -1 4 3600 -1 1 5 2 -1 1 0 -1 -1",
        "1 0 10 100 4 -1 -1 4 3600 -1 3 5 2 -1 1 0 -1 -1",
    )
    assert demands == [Demand(0, 0, 100, 4, "exclusive", None, "5")]
    assert left_out == {"no run time": 1}


def test_a_job_of_which_is_unknown_how_many_processors_it_got_has_those_that_it_asked_for(
    tmp_path: Path,
):
    demands, left_out = swf(
        tmp_path,
        "1 0 10 100 -1 -1 -1 4 3600 -1 1 5 2 -1 1 0 -1 -1",
        "2 1 10 100 -1 -1 -1 -1 3600 -1 1 5 2 -1 1 0 -1 -1",
    )
    assert demands == [Demand(0, 0, 100, 4, "exclusive", None, "5")]
    assert left_out == {"no number of processors": 1}


def test_jobs_and_users_may_have_ids_of_any_size_or_names(tmp_path: Path):
    """4294967294 is the user nobody of some systems."""
    demands, _ = swf(
        tmp_path,
        "20261127000001 0 10 100 4 -1 -1 4 3600 -1 1 4294967294 2 -1 1 0 -1 -1",
        "20261127000002 1 10 100 4 -1 -1 4 3600 -1 1 alice 2 -1 1 0 -1 -1",
        "20261127000003 2 10 100 4 -1 -1 4 3600 -1 1 7.0 2 -1 1 0 -1 -1",
        "20261127000004 3 10 100 4 -1 -1 4 3600 -1 1 -1 2 -1 1 0 -1 -1",
    )
    assert [demand.project for demand in demands] == ["4294967294", "alice", "7", ""]


def test_a_comment_of_a_log_may_be_in_any_charset(tmp_path: Path):
    path = tmp_path / "history"
    path.write_bytes("; Installation: Université\n".encode("latin1") + PACKED["swf"].encode())
    assert len(importers.read("swf", path).demands) == 1


def test_a_wrong_line_of_another_format_is_named_by_its_place_in_the_file(tmp_path: Path):
    with pytest.raises(HistoryError, match="history, line 3, column arrival: it is not before 0"):
        swf(
            tmp_path,
            "; a comment",
            "2 50 20 200 8 -1 -1 8 7200 -1 1 6 2 -1 1 0 -1 -1",
            "1 -5 10 100 4 -1 -1 4 3600 -1 1 5 2 -1 1 0 -1 -1",
        )


def test_a_file_in_which_nothing_can_be_used_says_what_was_left_out(tmp_path: Path):
    with pytest.raises(
        HistoryError,
        match=re.escape("no request for a GPU: 1 of 1 rows are left out (no run time: 1)"),
    ):
        swf(tmp_path, "1 0 10 -1 4 -1 -1 4 3600 -1 0 5 2 -1 1 0 -1 -1")


def test_the_openb_trace(tmp_path: Path):
    text = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time\n"
        "a,1,1,1,500,,LS,Running,10,30\n"
        "b,1,1,0,0,,LS,Running,10,30\n"
        "c,1,1,2,1000,T4,BE,Running,20,25\n"
        "d,1,1,2,1000,T4|A10,BE,Running,30,35\n"
    )
    assert importers.read("openb", written(tmp_path, text), memory_mb=16000).demands == [
        Demand(0, 0, 20, 1, "shared", 8000, "LS"),
        Demand(1, 10, 5, 2, "exclusive", None, "BE", "T4"),
        Demand(2, 20, 5, 2, "exclusive", None, "BE"),
    ]


def test_the_time_that_a_task_of_the_openb_trace_was_pending_is_no_use_of_gpus(tmp_path: Path):
    text = (
        "name,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time\n"
        "a,1,1000,,LS,10,30,25\nb,1,1000,,LS,12,30,\n"
    )
    a, b = importers.read("openb", written(tmp_path, text)).demands
    assert (a.arrival, a.duration, b.arrival, b.duration) == (0, 5, 2, 18)


def test_leases_of_a_running_service(tmp_path: Path):
    lease = {
        "created_at": "2026-01-01T00:00:00+00:00",
        "released_at": "2026-01-01T00:01:00+00:00",
        "project_id": "p",
        "cgpus": {"count": 2, "mode": "shared", "memory_mb": 512},
    }
    open_lease = {**lease, "released_at": None}
    on_cpus = {**lease, "cgpus": {**lease["cgpus"], "kind": "cpu"}}
    path = written(tmp_path, json.dumps([lease, open_lease, on_cpus]))
    assert importers.read("leases", path).demands == [Demand(0, 0, 60, 2, "shared", 512, "p")]


def test_the_wait_of_a_lease_is_no_use_and_its_requirements_are_kept(tmp_path: Path):
    """It waited 45 of 60 s in the queue; another left the queue without GPUs."""
    served = {
        "created_at": "2026-01-01T00:00:00+00:00",
        "queued_at": "2026-01-01T00:00:00+00:00",
        "released_at": "2026-01-01T00:01:00+00:00",
        "project_id": "p",
        "timings": {"queue": 45.0, "claim": 0.01},
        "server": None,
        "consumer": {"host": "gpu7", "uid": 1000, "address": None},
        "cgpus": {
            "count": 2,
            "mode": "exclusive",
            "memory_mb": None,
            "locality": "remote",
            "gpu_model": "H200",
            "compute_capability": "9.0",
            "hosts": "spread",
        },
    }
    gone = {**served, "timings": {}}
    path = written(tmp_path, json.dumps({"leases": [served, gone]}))
    assert importers.read("leases", path).demands == [
        Demand(
            *(0, 0, 15, 2, "exclusive", None, "p"),
            model="H200",
            capability="9.0",
            locality="remote",
            hosts="spread",
            consumer_host="gpu7",
        )
    ]


@pytest.mark.parametrize("kind", importers.FORMATS)
def test_a_file_of_another_kind_is_an_error_that_names_it(tmp_path: Path, kind: str):
    with pytest.raises(HistoryError, match="history"):
        importers.read(kind, written(tmp_path, "[1, 2]\n"))
    with pytest.raises(HistoryError, match="cannot be read"):
        importers.read(kind, tmp_path / "missing")
