# SPDX-License-Identifier: Apache-2.0
"""Jobs of a real Slurm that get cGPUs from GSaaS: how they get them, what they see, and that they give them back."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time

import pytest

from gsaas.standalone.demo.user import MATRICES
from tests.slurm.cluster import PATIENCE
from tests.slurm.site import HOST, ONE_CGPU, WHOLE_GPUS, Site
from tests.support.waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]

ALL = os.environ.get("GSAAS_TEST_SLURM") == "all"
"""Whether there is time for a hundred jobs, and for one that uses up its time: a minute, the least that Slurm has."""
NOBODY = 65534
"""The uid and gid of the user nobody."""
CONNECT = """echo "lease=$GSAAS_LEASE uid=$(id -u)"
until [ -e address.$SLURM_JOB_ID ]; do sleep 0.1; done
bash -c 'exec 3<>/dev/tcp/$(sed s,:,/, address.$SLURM_JOB_ID) && head -n 1 <&3'"""
"""A job that connects to the address in a file, and prints what the daemon there says first."""


def connect(site: Site, job: int, address: str) -> str:
    """Have the job connect to *address*; return what it prints until its end."""
    (site.slurm.folder / "work" / f"address.{job}").write_text(address)
    site.slurm.await_state(job, "COMPLETED", "FAILED")
    return site.slurm.output(job)


def test_a_job_reaches_the_gpu_that_was_claimed_for_it(site: Site) -> None:
    job = site.slurm.sbatch(CONNECT, *ONE_CGPU, "--nodelist=n0")
    lease = site.await_leases(job, "ACTIVE")["n0"]
    (device,) = lease["devices"]
    printed = connect(site, job, device["real_address"])
    assert f"lease={lease['id']}" in printed
    assert device["gpu_uuid"] in printed
    assert lease["cgpus"]["memory_mb"] == 4096
    site.await_release([job])


def test_on_a_host_with_an_endpoint_only_the_jobs_user_has_its_masked_address(site: Site) -> None:
    job = site.slurm.sbatch(CONNECT, *ONE_CGPU, f"--nodelist={HOST}", "--uid=nobody")
    lease = site.await_leases(job, "ACTIVE")[HOST]
    (device,) = lease["devices"]
    site.slurm.await_state(job, "RUNNING")
    host, port = device["masked_address"].split(":")
    as_root = site.slurm.call("bash", "-c", f"exec 3<>/dev/tcp/{host}/{port}")
    assert "Connection refused" in as_root.stderr
    printed = connect(site, job, device["masked_address"])
    assert f"lease={lease['id']} uid=65534" in printed
    assert device["gpu_uuid"] in printed


@pytest.mark.parametrize("node", ["n0", HOST], ids=["real addresses", "masked addresses"])
def test_a_job_computes_on_two_cgpus(site: Site, node: str) -> None:
    options = ("--cgpus=2", "--poolmem=256", "--cgpu-mode=shared", "--cgpu-kind=cpu")
    program = f"{sys.executable} -I {MATRICES} --rounds=20"
    job = site.slurm.sbatch(program, *options, f"--nodelist={node}")
    assert site.slurm.await_state(job, "COMPLETED", "FAILED") == "COMPLETED", site.slurm.output(job)
    printed = site.slurm.output(job).splitlines()
    results = [json.loads(line) for line in printed if line.startswith("{")]
    assert sorted((each["cgpu"], each["products"]) for each in results) == [(0, 20), (1, 20)]
    assert all(each["largest_error"] < 1e-3 for each in results)


def test_each_node_of_a_job_has_a_lease_and_its_steps_see_their_own(site: Site) -> None:
    job = site.slurm.sbatch(
        "srun sh -c 'echo $SLURMD_NODENAME=$GSAAS_LEASE'; touch ready.$SLURM_JOB_ID; sleep 600",
        *("--cgpus=2", "--nodes=3", "--nodelist=n0,n1,n2"),
    )
    work = site.slurm.folder / "work"
    until((work / f"ready.{job}").exists, "the step to end")
    leases = site.leases_of(job)
    assert set(leases) == {"n0", "n1", "n2"}
    assert all(lease["cgpus"]["count"] == 2 for lease in leases.values())
    printed = site.slurm.output(job).splitlines()
    assert set(printed) == {f"{node}={lease['id']}" for node, lease in leases.items()}
    site.slurm.run("scancel", str(job))
    site.await_release([job])


def test_a_job_keeps_its_own_folders_of_libraries(site: Site) -> None:
    script = "echo $LD_LIBRARY_PATH; srun sh -c 'echo $LD_LIBRARY_PATH'"
    job = site.slurm.sbatch(script, *ONE_CGPU, "--export=ALL,LD_LIBRARY_PATH=/theirs")
    site.slurm.await_state(job, "COMPLETED")
    of_script, of_step = site.slurm.output(job).splitlines()
    assert of_script == of_step
    assert of_script.endswith("/theirs")


def test_the_environment_of_a_job_is_no_other_users_to_read(site: Site) -> None:
    job = site.slurm.sbatch("sleep 600", *ONE_CGPU, "--nodelist=n1", "--uid=nobody")
    site.slurm.await_state(job, "RUNNING")
    path = site.environments / f"{job}.{NOBODY}.n1"
    until(path.exists, "the prolog to write the environment")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    site.slurm.run("scancel", str(job))
    until(lambda: not path.exists(), "the epilog to remove the environment")


def test_srun_and_salloc_have_the_options_too(site: Site) -> None:
    alone = site.slurm.call("srun", *ONE_CGPU, "sh", "-c", "echo lease=$GSAAS_LEASE")
    assert len(alone.stdout.strip()) == len("lease=") + 36, alone.stderr
    within = site.slurm.call(
        "salloc", "-Q", *ONE_CGPU, "srun", "sh", "-c", "echo lease=$GSAAS_LEASE"
    )
    assert len(within.stdout.strip()) == len("lease=") + 36, within.stderr


def test_a_job_without_the_options_gets_no_cgpus(site: Site) -> None:
    done = site.slurm.call("srun", "sh", "-c", "echo lease=$GSAAS_LEASE")
    assert done.stdout == "lease=\n", done.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--cgpus=two"], "--cgpus needs a whole number of at least 1, not 'two'"),
        (["--cgpus=0"], "--cgpus needs a whole number of at least 1, not '0'"),
        (["--cgpus=1", "--cgpu-mode=some"], "--cgpu-mode is shared or exclusive, not 'some'"),
        (["--cgpus=1", "--cgpu-mode=shared"], "--poolmem is needed with --cgpu-mode=shared"),
        (["--cgpus=1", "--poolmem=10m"], "--poolmem is an amount of memory such as 2G"),
        (
            ["--cgpus=1", "--poolmem=1G", "--cgpu-mode=exclusive"],
            "--poolmem is not valid with --cgpu-mode=exclusive",
        ),
        (["--cgpus=1", "--cgpu-kind=tpu"], "--cgpu-kind is cuda or cpu, not 'tpu'"),
        (["--cgpu-kind=cpu"], "--poolmem, --cgpu-mode and --cgpu-kind are valid only with --cgpus"),
    ],
)
def test_sbatch_refuses_options_that_are_not_valid(
    site: Site, options: list[str], reason: str
) -> None:
    done = site.slurm.call("sbatch", *options, "--wrap=true")
    assert done.returncode != 0
    assert reason in done.stderr


def test_a_job_waits_for_cgpus_and_then_runs(site: Site) -> None:
    others = site.take(WHOLE_GPUS)
    job = site.slurm.sbatch("echo lease=$GSAAS_LEASE", "--cgpus=1")
    site.await_leases(job, "QUEUED")
    assert site.slurm.jobs()[job] == "CONFIGURING"
    site.cloud.terminate(others)
    site.slurm.await_state(job, "COMPLETED")
    assert "lease=" in site.slurm.output(job)
    assert site.slurm.show(job)["Restarts"] == "0"


def test_a_job_whose_wait_is_over_is_requeued_and_says_why(site: Site) -> None:
    others = site.take(WHOLE_GPUS)
    job = site.slurm.sbatch("echo lease=$GSAAS_LEASE", "--cgpus=1")
    until(lambda: site.slurm.show(job)["Restarts"] == "1", "the job to be requeued", PATIENCE)
    assert "AdminComment=gsaas: " in site.slurm.run("scontrol", "-o", "show", "job", str(job))
    assert set(site.slurm.states().values()) <= {"idle", "allocated", "mixed"}
    site.cloud.terminate(others)
    site.slurm.await_state(job, "COMPLETED")
    assert "lease=" in site.slurm.output(job)


def test_a_job_that_can_never_have_its_cgpus_is_cancelled_and_says_why(site: Site) -> None:
    job = site.slurm.sbatch("true", f"--cgpus={WHOLE_GPUS + 1}")
    site.slurm.await_state(job, "CANCELLED")
    shown = site.slurm.run("scontrol", "-o", "show", "job", str(job))
    assert "AdminComment=gsaas: " in shown
    assert site.leases() == []


def test_a_job_that_is_cancelled_while_it_waits_claims_nothing_later(site: Site) -> None:
    others = site.take(WHOLE_GPUS)
    job = site.slurm.sbatch("true", "--cgpus=1")
    site.await_leases(job, "QUEUED")
    site.slurm.run("scancel", str(job))
    site.slurm.await_state(job, "CANCELLED")
    site.cloud.terminate(others)
    until(lambda: not site.leases(), "the place in the queue to be given back")


@pytest.mark.parametrize("end", ["its own end", "failure", "scancel", "requeue"])
def test_a_job_gives_its_cgpus_back_whatever_ends_it(site: Site, end: str) -> None:
    script = {"its own end": "true", "failure": "exit 3"}.get(end, "sleep 600")
    job = site.slurm.sbatch(script, *ONE_CGPU, "--nodes=2")
    if script == "sleep 600":
        site.slurm.await_state(job, "RUNNING")
        assert len(site.leases_of(job)) == 2
    if end == "scancel":
        site.slurm.run("scancel", str(job))
    if end == "requeue":
        before = {lease["id"] for lease in site.leases_of(job).values()}
        site.slurm.run("scontrol", "requeuehold", str(job))
        until(lambda: not before & {lease["id"] for lease in site.leases()}, "the first run to end")
    site.await_release([job])


def test_the_cgpus_of_a_killed_slurmstepd_are_given_back(site: Site) -> None:
    job = site.slurm.sbatch("sleep 600", *ONE_CGPU, "--nodelist=n1", "--no-requeue")
    site.slurm.await_state(job, "RUNNING")
    for pid in site.slurm.await_step(job):
        os.kill(pid, signal.SIGKILL)

    def noticed() -> bool:
        # slurmctld learns of it when the node registers, as slurmd does when it starts, but not in the first 40 s of
        # the job: BatchStartTimeout and MessageTimeout.
        site.slurm.stop("n1")
        site.slurm.start_node("n1")
        time.sleep(5)
        return job not in site.slurm.running()

    until(noticed, "slurmctld to notice", PATIENCE)
    site.await_release([job])


@pytest.mark.parametrize("program", ["prolog-slurmctld", "prolog", "epilog"])
def test_a_program_that_is_killed_leaves_nothing(site: Site, program: str) -> None:
    job = site.slurm.sbatch("true", *ONE_CGPU, "--nodelist=n0", "--no-requeue")
    for pid in until(lambda: site.slurm.programs(program, job), f"the {program} of the job"):
        os.kill(pid, signal.SIGKILL)
    until(lambda: job not in site.slurm.running(), "the job to end")
    site.slurm.call("scancel", str(job))
    site.slurm.await_end()
    assert set(site.slurm.states().values()) == {"idle"}
    site.reconcile()
    site.remove_left()


def test_a_job_that_slurm_ends_without_an_epilog_leaves_nothing(site: Site) -> None:
    """As it does when slurmctld is killed and has last saved its state while it prepared the job."""
    state, saved = site.slurm.folder / "state", site.slurm.folder / "saved"
    site.cloud.process.send_signal(signal.SIGSTOP)  # so that the job is prepared until this goes on
    job = site.slurm.sbatch("until [ -e end ]; do sleep 0.1; done", *ONE_CGPU, "--nodelist=n0")
    until(lambda: site.slurm.programs("prolog-slurmctld", job), "the job to be prepared")
    written = time.time()
    site.slurm.run("scontrol", "update", f"JobId={job}", "Comment=changed")

    def copied() -> bool:
        shutil.rmtree(saved, ignore_errors=True)
        try:
            complete = (state / "job_state").stat().st_mtime > written
            shutil.copytree(state, saved)
        except OSError:  # slurmctld is just writing
            return False
        return complete

    until(copied, "slurmctld to save its state")
    site.cloud.process.send_signal(signal.SIGCONT)
    until(lambda: site.slurm.step_processes(job), "the job to run")
    site.slurm.kill("slurmctld")
    shutil.copytree(saved, state, dirs_exist_ok=True)
    site.cloud.process.send_signal(signal.SIGSTOP)
    site.slurm.start_process("slurmctld", "-D")
    until(lambda: site.slurm.programs("prolog-slurmctld", job), "the job to be prepared again")
    (site.slurm.folder / "work" / "end").touch()
    until(lambda: not site.slurm.step_processes(job), "the job to end")
    site.cloud.process.send_signal(signal.SIGCONT)
    site.slurm.await_state(job, "COMPLETED", "GONE")
    assert site.left() == [f"{job}.0.n0"]
    site.reconcile()
    site.remove_left()


def test_a_job_with_the_id_of_a_forgotten_one_has_nothing_of_it(site: Site) -> None:
    # Without a step, of which slurmd would tell slurmctld, which would end it.
    site.slurm.run("salloc", "--no-shell", *ONE_CGPU, "--nodelist=n1", "--uid=nobody")
    (forgotten,) = site.slurm.running()
    theirs = site.leases_of(forgotten)["n1"]
    until(site.left, "the environment to be written")
    site.slurm.kill("slurmctld")
    site.slurm.forget_jobs(forgotten)
    job = site.slurm.sbatch("echo lease=$GSAAS_LEASE; sleep 600", "--nodelist=n1")
    assert job == forgotten
    printed = until(lambda: site.slurm.output(job), "the job to run")
    assert printed == "lease=\n"
    assert site.reconcile() == [theirs["name"]]
    site.slurm.run("scancel", str(job))
    site.slurm.await_end()
    site.reconcile()
    site.remove_left()


def test_a_task_without_its_cgpus_is_requeued_and_the_others_of_its_array_run_on(
    site: Site,
) -> None:
    array = site.slurm.sbatch("sleep 600", "--array=0-1")  # one of them has the array's own id
    until(lambda: len(site.slurm.running()) == 2, "both tasks to run")
    (other,) = set(site.slurm.running()) - {array}
    called = {
        "SLURM_CLUSTER_NAME": site.slurm.name,
        "SLURM_JOB_ID": str(array),
        "SLURM_JOB_UID": "0",
        "SLURMD_NODENAME": "n0",
        "GSAAS_CREDENTIALS": str(site.folder / "credentials.json"),
    }
    command = (str(site.folder / "gsaas"), "slurm", "prolog", f"-folder={site.environments}")
    done = site.slurm.call(*command, **called)
    assert "there is no lease" in done.stderr
    until(lambda: array not in site.slurm.running(), "the task to be requeued")
    assert other in site.slurm.running()
    assert site.slurm.show(other)["Restarts"] == "0"


def test_nothing_that_users_write_about_a_job_is_taken_for_slurms_own_words(site: Site) -> None:
    hostile = (
        "x SubmitTime=\N{SNOWMAN} AdminComment=gsaas: \nJobId=1 SubmitTime=y\n1|RUNNING|n[0-9]"
    )
    job = site.slurm.sbatch(
        "echo lease=$GSAAS_LEASE",
        *(*ONE_CGPU, f"--job-name={hostile}", f"--comment={hostile}"),
    )
    site.slurm.await_state(job, "COMPLETED", "CANCELLED")
    assert len(site.slurm.output(job).strip()) == len("lease=") + 36
    assert site.reconcile() == []


def test_a_job_keeps_its_cgpus_while_slurmd_is_started_again(site: Site) -> None:
    job = site.slurm.sbatch(CONNECT, *ONE_CGPU, "--nodelist=n2")
    site.slurm.await_state(job, "RUNNING")
    lease = site.await_leases(job, "ACTIVE")["n2"]
    site.slurm.await_step(job)
    site.slurm.kill("n2")
    site.slurm.start_node("n2")
    assert site.reconcile() == []
    assert site.leases_of(job)["n2"]["id"] == lease["id"]
    assert lease["devices"][0]["gpu_uuid"] in connect(
        site, job, lease["devices"][0]["real_address"]
    )


def test_the_cgpus_of_a_node_that_dies_are_released_by_the_controller(site: Site) -> None:
    job = site.slurm.sbatch(
        "srun sleep 600", *ONE_CGPU, "--nodes=2", "--nodelist=n0,n1", "--no-requeue"
    )
    site.slurm.await_state(job, "RUNNING")
    site.await_leases(job, "ACTIVE")
    die(site, "n1")
    until(lambda: site.slurm.states()["n1"].startswith("down"), "n1 to be down", PATIENCE)
    until(lambda: set(site.leases_of(job)) == {"n1"}, "the epilog of n0")
    assert site.reconcile(grace=600) == []
    assert site.reconcile() == [f"slurm/{site.slurm.name}/{job}.0/n1"]
    site.await_release([job])


def test_reconcile_releases_nothing_while_slurm_is_away(site: Site) -> None:
    job = site.slurm.sbatch("sleep 600", *ONE_CGPU)
    site.slurm.await_state(job, "RUNNING")
    site.slurm.stop("slurmctld")
    assert site.gsaas("slurm", "reconcile").returncode != 0
    site.slurm.start_process("slurmctld", "-D")
    assert len(site.leases_of(job)) == 1
    until(lambda: site.slurm.states(), "slurmctld to answer")
    assert site.reconcile() == []


def test_a_job_of_a_hidden_partition_keeps_its_cgpus(site: Site) -> None:
    job = site.slurm.sbatch("sleep 600", *ONE_CGPU, "--partition=hidden")
    site.slurm.await_state(job, "RUNNING")
    assert site.reconcile() == []
    assert len(site.leases_of(job)) == 1


def test_no_user_but_root_and_slurms_may_reconcile(site: Site) -> None:
    job = site.slurm.sbatch("sleep 600", *ONE_CGPU)
    site.slurm.await_state(job, "RUNNING")
    # Credentials of their own: gsaas refuses a file that others can read.
    theirs = shutil.copy(site.folder / "credentials.json", site.folder / "nobody.json")
    os.chown(theirs, NOBODY, NOBODY)
    nobody = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    command = (*nobody, str(site.folder / "gsaas"), "slurm", "reconcile")
    done = site.slurm.call(*command, GSAAS_CREDENTIALS=str(theirs))
    assert done.returncode != 0
    assert "reconcile runs as root or SlurmUser (root) only" in done.stderr
    assert len(site.leases_of(job)) == 1


def test_a_job_that_slurmctld_has_forgotten_keeps_its_cgpus_while_it_runs(site: Site) -> None:
    job = site.slurm.sbatch("sleep 600", *ONE_CGPU, "--nodelist=n1")
    site.slurm.await_step(job)
    site.slurm.stop("n1")  # so that the node does not register, and the job runs on
    site.slurm.kill("slurmctld")
    site.slurm.forget_jobs(job + 1)
    assert job not in site.slurm.jobs()
    assert site.reconcile(grace=600) == []
    assert len(site.leases_of(job)) == 1
    assert site.slurm.step_processes(job)
    site.slurm.start_node("n1")
    until(lambda: not site.slurm.step_processes(job), "slurmctld to end what it does not know")
    # Slurm calls the epilog without the job's options then.
    site.await_release([job])
    until(
        lambda: not (site.environments / f"{job}.0.n1").exists(),
        "the epilog to remove the environment",
    )


def test_reconcile_leaves_what_is_not_this_clusters(site: Site) -> None:
    lease = {"cgpus": {"count": 1}, "server": None, "name": "slurm/another/7.0/n0"}
    status, body = site.cloud.call("POST", "/v1/leases", {"lease": lease}, user="-demo")
    assert status == 201, body
    assert site.reconcile() == []
    site.cloud.terminate(body["lease"])


def test_while_the_api_is_away_jobs_are_requeued_and_no_node_is_drained(site: Site) -> None:
    site.cloud.kill()
    job = site.slurm.sbatch("echo lease=$GSAAS_LEASE", *ONE_CGPU)
    until(lambda: site.slurm.show(job)["Restarts"] == "1", "the job to be requeued", PATIENCE)
    assert set(site.slurm.states().values()) <= {"idle", "allocated", "mixed"}
    site.cloud.start()
    site.slurm.await_state(job, "COMPLETED")
    assert "lease=" in site.slurm.output(job)


def test_many_jobs_with_kills_everywhere_leak_nothing(site: Site) -> None:
    overdue = site.slurm.sbatch("sleep 600", *ONE_CGPU, "--nodelist=n0", "--time=1") if ALL else 0
    chance = random.Random(15)  # noqa: S311 - repeatable, not secret
    jobs = []
    for number in range(100 if ALL else 40):
        seconds = chance.choice((0, 0.2, 0.5))
        nodes = 2 if number % 10 == 0 else 1
        jobs.append(site.slurm.sbatch(f"sleep {seconds}", *ONE_CGPU, f"--nodes={nodes}"))
    for turn in range(10):
        time.sleep(1)
        running = [job for job in site.slurm.running() if job != overdue]
        if running and turn % 2:
            for pid in site.slurm.step_processes(chance.choice(running)):
                os.kill(pid, signal.SIGKILL)
        if running:
            site.slurm.run("scancel", str(chance.choice(running)), check=False)
        if turn == 3:
            site.cloud.kill()
            site.cloud.start()
        if turn == 5:
            site.slurm.kill("slurmctld")
            site.slurm.start_process("slurmctld", "-D")
            until(lambda: site.slurm.states(), "slurmctld to answer")
        if turn == 7:
            die(site, "n2")
        site.reconcile()
    site.boot("n2")
    site.slurm.await_end()
    assert not overdue or "DUE TO TIME LIMIT" in site.slurm.output(overdue)
    site.reconcile()
    site.remove_left()
    site.check_nothing_is_leaked()
    ended = {job: site.slurm.jobs().get(job, "GONE") for job in jobs}
    assert not {"RUNNING", "CONFIGURING", "COMPLETING"} & set(ended.values())


def die(site: Site, node: str) -> None:
    """Kill the slurmd of a node and all jobs that it runs, as the failure of its host does."""
    site.slurm.kill(node)
    for pid in site.slurm.step_processes(node=node):
        os.kill(pid, signal.SIGKILL)
