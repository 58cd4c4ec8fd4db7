# SPDX-License-Identifier: Apache-2.0
"""What the SPANK plug-in does to the environment of a task, with a program in the place of slurmstepd.

tests/slurm has the plug-in in a real Slurm.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "spank"
PLUGIN = Path(__file__).parents[3] / "client/slurm/spank_gsaas.c"
OURS = "/opt/rCUDA/lib"


@pytest.fixture(scope="module")
def stepd(tmp_path_factory) -> Path:
    built = tmp_path_factory.mktemp("spank") / "stepd"
    flags = ["-Wall", "-Wextra", "-Werror", "-O2", "-fsanitize=address,undefined", f"-I{HERE}"]
    subprocess.run(["gcc", *flags, "-o", built, HERE / "main.c", PLUGIN], check=True)
    return built


def start(stepd: Path, folder: Path, **job: str) -> dict[str, str]:
    """Return the environment of a task of a job with the environment *job*."""
    environment = {"SLURMD_NODENAME": "n1", **job}
    command = [stepd, f"folder={folder}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    variables = dict(line.partition("=")[::2] for line in done.stdout.split("\0")[:-1])
    return {name: variables[name] for name in variables if name != "SLURMD_NODENAME"}


@pytest.mark.parametrize(
    ("theirs", "wanted"),
    [
        (None, OURS),
        ("", OURS),
        ("/cuda/lib64:/a b", f"{OURS}:/cuda/lib64:/a b"),
        (f"{OURS}:/cuda/lib64", f"{OURS}:/cuda/lib64"),
        (f"/cuda/lib64:{OURS}", f"/cuda/lib64:{OURS}"),
        (f"{OURS}64", f"{OURS}:{OURS}64"),
    ],
)
def test_a_task_finds_the_leases_libraries_before_those_of_its_job(stepd, tmp_path, theirs, wanted):
    (tmp_path / "17.1000.n1").write_text(f"LD_LIBRARY_PATH={OURS}\0GSAAS_LEASE=abc\0")
    job = {"GSAAS_LEASE": "another"} | ({} if theirs is None else {"LD_LIBRARY_PATH": theirs})
    assert start(stepd, tmp_path, **job) == {"LD_LIBRARY_PATH": wanted, "GSAAS_LEASE": "abc"}


def test_a_task_of_a_job_without_cgpus_keeps_its_environment(stepd, tmp_path):
    job = {"LD_LIBRARY_PATH": "/cuda/lib64"}
    assert start(stepd, tmp_path, **job) == job


def test_a_task_has_nothing_of_what_another_users_job_with_its_id_has_left(stepd, tmp_path):
    (tmp_path / "17.1001.n1").write_text("GSAAS_LEASE=theirs\0")
    assert start(stepd, tmp_path) == {}


def test_a_task_does_not_start_with_half_of_an_environment(stepd, tmp_path):
    (tmp_path / "17.1000.n1").write_text("GSAAS_LEASE=abc\0GSAAS")
    command = [stepd, f"folder={tmp_path}"]
    done = subprocess.run(
        command, env={"SLURMD_NODENAME": "n1"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "17.1000.n1 is not complete" in done.stderr
