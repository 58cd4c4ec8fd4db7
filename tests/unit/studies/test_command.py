# SPDX-License-Identifier: Apache-2.0
"""`python -m studies` runs the studies with files and parameters that it is given."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from studies import __main__ as command
from studies.openb import trace

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,65536,2,T4\nb,64000,65536,2,P100\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"pod-{number},1000,1024,1,500,T4\n" for number in range(20)
)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    return ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]


@pytest.mark.slow
def test_openb_prints_a_row_for_each_scheduler_with_mean_and_runs(files: list[str]):
    """All tasks allow the T4s only: half of the GPUs."""
    arguments = ["openb", *files, "--load", "1.25", "--seeds", "3", "--json"]
    ran = subprocess.run(
        [sys.executable, "-m", "studies", *arguments], capture_output=True, check=True, text=True
    )
    rows = json.loads(ran.stdout)["rows"]
    names = ["Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "FGD"]
    assert [row["scheduler"] for row in rows] == names
    assert all(set(row) == {"scheduler", "mean", "runs"} for row in rows)
    assert all(row["runs"] == [50.0] * 3 and row["mean"] == 50.0 for row in rows)


@pytest.mark.slow
def test_the_published_workload_by_file_gives_what_the_recipe_gives(tmp_path: Path, capsys):
    traces = Path(trace.__file__).parent / "traces"
    pods = traces / "openb_pod_list_gpuspec33.csv.gz"
    nodes = traces / "openb_node_list_gpu_node.csv.gz"
    arguments = ["openb", "--nodes", str(nodes), "--pods", str(pods), "--seeds=1", "--json"]
    assert command.main([*arguments, "--schedulers", "BestFit"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["mean"] == pytest.approx(93.09, abs=0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--load", "0"], "0 is not between 0 and"),
        (["--load", "nan"], "nan is not between"),
        (["--load", "1e300"], "1e300 is not between 0 and 100"),
        (["--seeds", "-1"], "-1 is not between"),
        (["--schedulers", "Best"], "invalid choice: 'Best'"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_named(files, capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_:
        command.main(["openb", *files, *arguments])
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_an_error_in_a_file_is_one_sentence(files, capsys):
    Path(files[1]).write_text(NODES.replace("b,64000", "b,inf"))
    assert command.main(["openb", *files]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "nodes.csv, line 3, column cpu_milli: is not a whole number: 'inf'" in error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "arguments", "rows"),
    [
        ("rq", ["--jobs=200", "--nodes", "50", "56"], 2),
        ("mrq", ["--jobs=20", "--experiments", "gpus"], 3),
        ("mrq", ["--jobs=20", "--experiments", "figure-10"], 9),
        ("slurm", ["--clusters", "policies", "--policies", "first-local", "best-fit"], 6),
        ("dmr", ["--chapter=6"], 20),
        ("dmr", ["--jobs", "20", "40"], 8),
    ],
)
def test_the_other_studies_take_their_parameters(capsys, study, arguments, rows):
    assert command.main([study, "--seeds=2", "--json", *arguments]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == rows


def test_the_frontier_is_drawn_from_the_default_workload_only(capsys, monkeypatch, tmp_path: Path):
    monkeypatch.setattr("studies.recipes.openb_remote.rows", lambda *_: iter(()))
    arguments = ["remote", "--workloads", "multigpu20", "--svg", str(tmp_path / "frontier.svg")]
    assert command.main(arguments) == 1
    assert "--svg draws the workload default" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["dmr", "--chapter=6", "--gpus=64"],
            "--jobs and --gpus are for the workloads of chapter 7",
        ),
        (["dmr", "--gpus=16"], "--gpus is at least 32, which a job may need"),
        (
            ["slurm", "--clusters", "policies", "--modes", "CUDA"],
            "no cluster is run in these modes",
        ),
    ],
)
def test_parameters_that_do_not_fit_together_are_named(capsys, arguments, message):
    assert command.main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_cluster_of_a_few_gpus_has_a_result_too(files, capsys):
    """No arrival comes close to 130 %: each asks for an eighth of the cluster."""
    assert command.main(["openb", *files, "--seeds=1", "--schedulers", "FGD", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row == {"scheduler": "FGD", "mean": 50.0, "runs": [50.0]}
