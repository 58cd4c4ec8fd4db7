# SPDX-License-Identifier: Apache-2.0
"""`gsaas slurm`: what a job asks for, what its leases are called, and which of them are stale."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gsaasclient.cli.slurm import jobs

SHARE = Path(__file__).parents[3] / "client/slurm"
OPTIONS = {"SPANK_GSAAS_CGPUS": "1"}
CALLED = {
    "SLURM_CLUSTER_NAME": "c1",
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_RESTART_COUNT": "2",
    "SLURM_JOB_UID": "1000",
}


def lease(name: str, status: str = "ACTIVE", created: int = 0, uid: int = 1000) -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "status": status,
        "created_at": f"2026-11-01T12:00:0{created}.000000Z",
        "consumer": {"uid": uid},
    }


def stale(nodes: dict[str, list[str]], *leases: dict[str, Any]) -> list[str]:
    held = {(job, 1000): names for job, names in nodes.items()}
    return [each["name"] for each in jobs.stale(leases, "c1", held)]


def test_a_job_without_the_option_asks_for_nothing():
    assert jobs.cgpus_of({"SPANK_GSAAS_POOLMEM": "10"}) is None


def test_the_options_of_a_job_are_the_apis_fields():
    assert jobs.cgpus_of({"SPANK_GSAAS_CGPUS": "2"}) == {
        "count": 2,
        "mode": "exclusive",
        "locality": "any",
    }
    shared = {
        "SPANK_GSAAS_CGPUS": "1",
        "SPANK_GSAAS_POOLMEM": "2048",
        "SPANK_GSAAS_MODE": "shared",
        "SPANK_GSAAS_KIND": "cpu",
    }
    assert jobs.cgpus_of(shared) == {
        "count": 1,
        "mode": "shared",
        "locality": "any",
        "memory_mb": 2048,
        "kind": "cpu",
    }


@pytest.mark.parametrize("memory", ["2048", "2G", "2GiB"])
def test_memory_without_a_mode_means_shared(memory):
    found = jobs.cgpus_of({"SPANK_GSAAS_CGPUS": "1", "SPANK_GSAAS_POOLMEM": memory})
    assert found == {"count": 1, "mode": "shared", "locality": "any", "memory_mb": 2048}


@pytest.mark.parametrize(
    ("forged", "reason"),
    [
        ({"SPANK_GSAAS_CGPUS": "1; reboot"}, "--cgpus needs a whole number"),
        ({"SPANK_GSAAS_CGPUS": ""}, "--cgpus needs a whole number"),
        ({"SPANK_GSAAS_CGPUS": "1", "SPANK_GSAAS_MODE": "all"}, "--cgpu-mode is exclusive or"),
        ({"SPANK_GSAAS_CGPUS": "1", "SPANK_GSAAS_KIND": "all"}, "--cgpu-kind is cuda or"),
        ({"SPANK_GSAAS_CGPUS": "1", "SPANK_GSAAS_MODE": "shared"}, "shared needs --poolmem"),
        ({"SPANK_GSAAS_CGPUS": "1", "SPANK_GSAAS_POOLMEM": "5m"}, "did you mean 5M?"),
        (
            {
                "SPANK_GSAAS_CGPUS": "1",
                "SPANK_GSAAS_POOLMEM": "5",
                "SPANK_GSAAS_MODE": "exclusive",
            },
            "exclusive has none",
        ),
    ],
)
def test_options_that_the_plug_in_has_not_checked_are_refused(forged, reason):
    with pytest.raises(jobs.JobError, match=reason):
        jobs.cgpus_of(forged)


def test_each_run_of_a_job_has_names_and_keys_of_its_own():
    first = jobs.job_of({**CALLED, "SLURM_JOB_RESTART_COUNT": "0"})
    third = jobs.job_of(CALLED)
    assert first.lease_name("n1") == "slurm/c1/17.0/n1"
    assert third.lease_name("n1") == "slurm/c1/17.2/n1"
    assert third.key("n1", "2026-11-01T12:00:00") == "slurm-c1-17-2-2026-11-01T12:00:00-n1"
    assert first.key("n1", "2026-11-01T12:00:00") != third.key("n1", "2026-11-01T12:00:00")


def test_only_slurm_calls_these_programs():
    with pytest.raises(jobs.JobError, match="SLURM_JOB_ID and SLURM_JOB_UID not set"):
        jobs.job_of({"SLURM_CLUSTER_NAME": "c1"})


def test_a_task_of_an_array_has_a_name_and_a_time_of_submission_of_its_own():
    listed = "17|16_1|2026-11-01T12:00:00\n16|16_2|2026-11-01T13:00:00\n"
    assert [jobs.name_of(listed, job) for job in ("16", "17", "1")] == ["16_2", "16_1", "1"]
    assert jobs.submitted(listed, "16") == "2026-11-01T13:00:00"
    assert jobs.submitted(listed, "17") == "2026-11-01T12:00:00"
    assert jobs.submitted(listed, "1") == ""


def test_a_part_of_a_heterogeneous_job_goes_by_its_id():
    assert jobs.name_of("16|16+0|2026-11-01T12:00:00\n17|16+1|2026-11-01T12:00:00", "17") == "17"


@pytest.mark.parametrize("forged", ["1\ngsaas-slurm: all is well", "\x1b[2J", "\udcff", "\u2028"])
def test_what_a_user_forges_writes_no_line_of_the_log(forged):
    with pytest.raises(jobs.JobError) as refusal:
        jobs.cgpus_of({"SPANK_GSAAS_CGPUS": forged})
    assert str(refusal.value).isprintable()


def test_a_job_uses_its_own_lease_and_not_that_of_a_forgotten_job_with_its_id():
    job = jobs.job_of(CALLED)
    name = job.lease_name("n1")
    theirs, earlier, own = lease(name, uid=1), lease(name, created=1), lease(name, created=2)
    later = lease(name, created=3, uid=1)
    assert jobs.lease_of([theirs, earlier, own, later], job) is own
    assert jobs.lease_of([theirs, lease(name, "CLAIMED")], job) is None


def test_the_lease_of_a_forgotten_job_is_stale_when_another_has_its_id():
    name = "slurm/c1/17.0/n1"
    own, theirs = lease(name, created=2), lease(name, created=1) | {"id": "theirs"}
    nodes = {("17", 1000): ["n1"]}
    assert jobs.stale([own, theirs], "c1", nodes) == [theirs]
    of_another = lease(name, created=3, uid=1) | {"id": "of another"}
    assert jobs.stale([own, of_another], "c1", nodes) == [of_another]


def test_jobs_have_their_nodes_until_the_epilogs_have_ended():
    listed = "1|PENDING|7|\n2|RUNNING|7|n[0-1]\n3|COMPLETING|8|n2\n4|COMPLETED|8|n3\n5|CONFIGURING|9|n4\n"
    assert jobs.holders(listed) == {"2": (7, "n[0-1]"), "3": (8, "n2"), "5": (9, "n4")}


@pytest.mark.parametrize("listed", ["slurm_load_jobs error: Unable to contact", "1|RUNNING|7"])
def test_an_answer_that_is_none_is_not_taken_for_no_jobs(listed):
    with pytest.raises(jobs.JobError, match="an unexpected line"):
        jobs.holders(listed)


@pytest.mark.parametrize(
    ("listed", "ends"),
    [
        ("", True),
        ("8|RUNNING|0|n0", True),
        ("7|CONFIGURING|0|n0", False),
        ("7|RUNNING|0|n0", False),
        ("7|COMPLETING|0|n0", True),
        ("7|CANCELLED|0|n0", True),
        ("7|PENDING|0|", True),
    ],
)
def test_a_job_that_has_ended_or_is_ending_gets_no_cgpus(listed, ends):
    assert jobs.ends(listed, "7") is ends


def test_a_lease_is_stale_when_its_job_does_not_have_its_node():
    held = lease("slurm/c1/17.0/n1")
    lost = lease("slurm/c1/17.0/n2")
    gone = lease("slurm/c1/18.0/n1", "QUEUED")
    assert stale({"17": ["n1", "n3"]}, held, lost, gone) == [lost["name"], gone["name"]]


def test_the_lease_of_an_earlier_run_on_the_same_node_is_stale():
    nodes = {"17": ["n1"]}
    earlier, now = lease("slurm/c1/17.9/n1"), lease("slurm/c1/17.10/n1")
    assert stale(nodes, now, earlier) == [earlier["name"]]


@pytest.mark.parametrize(
    "name",
    ["training", "slurm/c2/17.0/n1", "slurm/c1", "slurm/c1/17/n1", "slurm/c1/x.0/n1", "slurm/c1/"],
)
def test_no_other_lease_is_ever_stale(name):
    assert stale({}, lease(name)) == []


def test_a_lease_that_is_released_is_left_alone():
    assert stale({}, lease("slurm/c1/17.0/n1", "RELEASING")) == []


@pytest.mark.parametrize("script", ["prolog-slurmctld", "prolog", "epilog"])
def test_the_scripts_have_no_mistake_that_shellcheck_knows(script):
    command = ["shellcheck", "-x", "--shell=sh", SHARE / script]
    done = subprocess.run(command, cwd=SHARE.parents[1], capture_output=True, text=True)
    assert done.stdout == ""


@pytest.mark.parametrize("script", ["prolog-slurmctld", "prolog", "epilog"])
def test_a_job_without_cgpus_costs_a_shell_and_nothing_more(script):
    done = subprocess.run([SHARE / script], env={}, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def installed(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """What calls a script as Slurm does, with settings of this content or without any, and with a job's options."""

    def call(
        script: str, settings: str | None, job: dict[str, str] = OPTIONS
    ) -> subprocess.CompletedProcess[str]:
        path, copy, log = tmp_path / "slurm.env", tmp_path / script, tmp_path / "log"
        if settings is not None:
            path.write_text(settings)
        copy.write_text((SHARE / script).read_text().replace("/etc/gsaas/slurm.env", str(path)))
        copy.chmod(0o755)
        (tmp_path / "logger").write_text(f'#!/bin/sh\necho "$3" >>{log}\n')
        (tmp_path / "logger").chmod(0o755)
        job = {**job, "SLURM_JOB_ID": "17", "PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run([copy], env=job, capture_output=True, text=True)
        done.stdout += log.read_text() if log.exists() else ""
        return done

    return call


@pytest.mark.parametrize("script", ["prolog", "epilog"])
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (None, "slurm.env cannot be read"),
        ("", "ended with status 12"),  # 125 to 127: no program is named
        ("GSAAS='", "ended with status 2"),  # no quote at the end
        ("exit 4", "ended with status 4"),
        ("GSAAS=/bin/false", "ended with status 1"),
        ("GSAAS=/nowhere/gsaas", "ended with status 127"),
    ],
)
def test_no_failure_on_a_node_is_the_nodes(installed, script, settings, said):
    done = installed(script, settings)
    assert done.returncode == 0
    assert done.stdout.startswith(f"{script}: job 17: ")
    assert said in done.stdout


@pytest.mark.parametrize("script", ["prolog", "epilog"])
def test_a_script_of_a_node_ends_what_does_not_end(installed, tmp_path, script):
    """With a `timeout` that has less patience than the script asks for."""
    (tmp_path / "timeout").write_text(
        '#!/bin/sh\n[ "$1 $2 $3" = "-k 5 60" ] && shift 3 && exec /usr/bin/timeout -k 0.1 0.1 "$@"\n'
    )
    (tmp_path / "timeout").chmod(0o755)
    (tmp_path / "gsaas").write_text("#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n")
    (tmp_path / "gsaas").chmod(0o755)
    done = installed(script, f"GSAAS={tmp_path}/gsaas")
    assert (done.returncode, done.stdout) == (0, f"{script}: job 17: it ended with status 137\n")


def test_a_job_is_requeued_if_the_controller_has_no_settings(installed):
    done = installed("prolog-slurmctld", None)
    assert done.returncode == 1
    assert "slurm.env cannot be read" in done.stdout


@pytest.mark.parametrize("prepared", [True, False])
def test_the_epilog_of_a_job_without_its_options_goes_by_what_the_prolog_wrote(
    installed, tmp_path, prepared
):
    """As slurmd calls it for a job that slurmctld has forgotten."""
    (tmp_path / "gsaas").write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/called\n')
    (tmp_path / "gsaas").chmod(0o755)
    if prepared:
        (tmp_path / "17.1000.n0").touch()
    settings = f"GSAAS={tmp_path}/gsaas\nGSAAS_FOLDER={tmp_path}"
    job = {"SLURMD_NODENAME": "n0", "SLURM_JOB_UID": "1000"}
    done = installed("epilog", settings, job)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "called").exists() == prepared


@pytest.mark.parametrize("unit", ["service", "timer"])
def test_systemd_accepts_the_units(unit: str, tmp_path: Path):
    (tmp_path / "gsaas").symlink_to(sys.executable)
    for each in SHARE.glob("gsaas-slurm-reconcile.*"):  # a timer is verified with its service
        (tmp_path / each.name).write_text(each.read_text().replace("/opt/gsaas/bin", str(tmp_path)))
    command = ["systemd-analyze", "verify", "--man=no", tmp_path / f"gsaas-slurm-reconcile.{unit}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
