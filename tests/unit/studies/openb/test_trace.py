# SPDX-License-Identifier: Apache-2.0
"""The trace, the order of its tasks, and one run of it."""

from __future__ import annotations

import gzip
import random
import re
from statistics import mean

import pytest

from studies.openb import local, schedulers, trace
from studies.openb.arrivals import draw_arrivals
from studies.openb.trace import Task

CAPACITY = 6_212_000


@pytest.fixture(scope="module")
def nodes():
    return trace.nodes()


def test_the_nodes_are_those_that_were_published(nodes):
    assert len(nodes) == 1213
    assert sum(node.gpus for node in nodes) == 6212
    assert sum(node.cpu for node in nodes) == 107_018_000


def test_the_tasks_are_those_that_were_published():
    tasks = trace.tasks("default")
    assert len(tasks) == 8152
    assert sum(task.gpus == 1 and task.milli < 1000 for task in tasks) == 3078


def test_there_are_ten_published_runs_of_six_schedulers_on_four_workloads():
    runs = {(run.workload, run.scheduler, run.seed) for run in trace.published()}
    assert len(runs) == 240
    assert {scheduler.name for scheduler in schedulers.SCHEDULERS} == {name for _, name, _ in runs}


@pytest.mark.parametrize("workload", trace.WORKLOADS)
def test_arrivals_ask_for_the_load_and_not_for_more(workload):
    coming = draw_arrivals(trace.tasks(workload), CAPACITY, 1.3, random.Random(42))
    asked = sum(task.total_milli for task in coming)
    assert 1.3 * CAPACITY - 8000 < asked <= 1.3 * CAPACITY + 7000


def test_too_many_arrivals_lose_some():
    tasks = [Task(1, 1, 1, 1000) for _ in range(10)]
    assert len(draw_arrivals(tasks, 1000, 4.5, random.Random(1))) == 4


@pytest.mark.slow
def test_a_seed_decides_everything(nodes):
    tasks = trace.tasks("multigpu20")[:500]
    runs = [local.run(nodes[:60], tasks, schedulers.FgdScheduler, seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["default", "gpuspec33"])
def test_a_whole_run_is_as_published(nodes, workload):
    """One of the ten runs of the recipe; single runs vary by about 0.2 points."""
    published = [
        run for run in trace.published() if (run.workload, run.scheduler) == (workload, "FGD")
    ]
    curve = local.run(nodes, trace.tasks(workload), schedulers.FgdScheduler, 42)
    assert curve.allocated_at(100) == pytest.approx(mean(run.at_100 for run in published), abs=0.5)
    assert curve.allocated_at(130) == pytest.approx(mean(run.at_130 for run in published), abs=0.5)


NODE_FILE = (
    "sn,cpu_milli,memory_mib,gpu,model\nnode-b,64000,65536,2,T4\nnode-a,32000,65536,8,P100\n"
)
POD_FILE = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    "pod-1,4000,1024,1,500,V100M32|T4|T4\npod-0,4000,1024,2,1000,\npod-2,4000,1024,0,0,T4\n"
)


def test_files_of_the_format_are_read_and_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODE_FILE, encoding="utf-8-sig")
    (tmp_path / "pods.csv.gz").write_bytes(gzip.compress(POD_FILE.encode()))
    assert [node.name for node in trace.read_nodes(tmp_path / "nodes.csv")] == ["node-a", "node-b"]
    assert trace.read_tasks(tmp_path / "pods.csv.gz") == [
        Task(4000, 1024, 2, 1000),
        Task(4000, 1024, 1, 500, ("T4", "V100M32")),
        Task(4000, 1024, 0, 0),
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pod-1,4000", "pod-1,nan", "line 2, column cpu_milli: is not a whole number: 'nan'"),
        ("pod-0,4000,1024,2,1000", "pod-0,4000,1024,2,-1", "line 3, column gpu_milli: is no"),
        ("pod-0,4000,1024,2,1000", "pod-0,4000,1024,2,999", "line 3, column gpu_milli: is less"),
        ("pod-1,4000,1024,1,500", "pod-1,4000,1024,1,0", "line 2, column gpu_milli: is 0"),
        ("pod-2,4000,1024,0,0,T4", "pod-2", "line 4, column num_gpu: is not a whole number: ''"),
        ("pod-1,4000", "pod-1,4000.5", "line 2, column cpu_milli: is not a whole number: '4000.5'"),
        ("pod-1,4000", "pod-1,1" + "0" * 5000, "line 2, column cpu_milli: is more than 1e+12"),
        ("pod-1,4000", "pod-1,4,000", "line 2 has more columns than the first line"),
        (POD_FILE, POD_FILE.splitlines()[0] + "\nx,1,1,0,0,\n", "has no task with a GPU"),
        ("name,cpu", '"name,cpu', "line 1: unexpected end of data"),
        ("name,", "name" * 50_000 + ",", "line 1: field larger than"),
        ("num_gpu", "gpus", "has no column num_gpu"),
    ],
)
def test_an_error_in_a_file_is_named_with_line_and_column(tmp_path, old, new, message):
    path = tmp_path / "pods.csv"
    path.write_text(POD_FILE.replace(old, new))
    with pytest.raises(trace.TraceError, match="pods.csv.*" + re.escape(message)):
        trace.read_tasks(path)


def test_a_file_may_have_other_line_ends_and_another_order_of_columns_and_lines(tmp_path):
    """As pandas writes it where a column had gaps: with whole numbers that end with .0."""
    (tmp_path / "as-published").write_text(POD_FILE)
    (tmp_path / "otherwise").write_bytes(
        b"gpu_spec,num_gpu,gpu_milli,qos,memory_mib,cpu_milli,name\r\n"
        b"T4,0.0,0.0,LS,1024.0,4000.0,pod-2\r\n"
        b',2.0,1000.0,"a\r\nb", 1024,4000.0,pod-0\r\n\r\n'
        b"V100M32|T4,1.0,500.0,,1024.0,4000.0,pod-1"
    )
    tasks = trace.read_tasks(tmp_path / "otherwise")
    assert tasks == trace.read_tasks(tmp_path / "as-published")


def test_nodes_without_a_gpu_are_no_cluster(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,65536,0,\n")
    with pytest.raises(trace.TraceError, match=r"nodes\.csv has no node with a GPU"):
        trace.read_nodes(path)


def test_a_compressed_file_that_is_broken_is_named(tmp_path):
    whole = gzip.compress(NODE_FILE.encode() * 100)
    for name, content in (("cut", whole[:-20]), ("changed", whole[:40] + b"\0" * 40 + whole[80:])):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(trace.TraceError, match=f"{name} cannot be read"):
            trace.read_nodes(tmp_path / name)


def test_on_a_small_cluster_what_is_allocated_is_read_after_the_last_arrival_before():
    """Each task asks for an eighth of the cluster: after 125 % the next one would exceed 130 %."""
    curve = local.AllocationCurve([100.0, 112.5, 125.0], [75.0, 87.5, 100.0], 0)
    assert curve.allocated_at(112) == 87.5
    assert curve.allocated_at(130) == 100.0
    assert curve.allocated_at(99) == 0.0


def test_a_file_that_is_missing_empty_or_no_text_is_named(tmp_path):
    (tmp_path / "empty").write_text("")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("missing", "empty", "binary"):
        with pytest.raises(trace.TraceError, match=name):
            trace.read_nodes(tmp_path / name)
