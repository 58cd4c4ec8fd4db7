# SPDX-License-Identifier: Apache-2.0
"""`gsaas slurm reconcile`: whose leases it releases, with programs in the place of Slurm's that answer as those do."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gsaasclient import ApiError, ClientError
from gsaasclient.cli.slurm import controller, jobs, scheduler, sightings

CONFIG = """Configuration data as of 2026-11-01T12:00:00
ClusterName             = c1
SlurmUser               = slurm(64030)
SlurmdUser              = root(0)
"""
SCONTROL = f"""#!/bin/sh
case "$2" in
config) cat <<'END'
{CONFIG}END
;;
hostnames) echo "$3" ;;
esac
"""
SQUEUE = """#!/bin/sh
[ -z "$SQUEUE_PARTITION" ] || exit 0
for word; do
    [ "$word" != --all ] || cat "$(dirname "$0")/hidden"
done
"""
SLURM, ROOT = 64030, 0


class Api:
    """Has leases, and ends those that are deleted."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.refused: list[str] = []

    def request(self, method: str, path: str, *_rest: Any, **_options: Any) -> dict[str, Any]:
        if method == "DELETE":
            name = path.removeprefix("/v1/leases/").replace("%2F", "/")
            if name in self.refused:
                raise ApiError(409, detail="it changes")
            self.names.remove(name)
            return {}
        common = {
            "status": "ACTIVE",
            "created_at": "2026-11-01T12:00:00Z",
            "consumer": {"uid": 1000},
        }
        return {"leases": [{"id": name, "name": name, **common} for name in self.names]}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch) -> Callable[[str], None]:
    """Programs that answer as Slurm's; returns what sets the jobs, all of which are in a hidden partition."""
    for name, text in (("scontrol", SCONTROL), ("squeue", SQUEUE)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: SLURM)
    return lambda listed: (tmp_path / "hidden").write_text(listed) and None


def reconcile(api: Api, grace: int | None = 0, state: Path | None = None) -> None:
    assert controller.reconcile(api, SimpleNamespace(grace=grace, state=state), {}) == 0


def test_a_job_of_a_hidden_partition_keeps_its_cgpus(slurm):
    slurm("17|RUNNING|1000|n1\n")
    api = Api("slurm/c1/17.0/n1", "slurm/c1/18.0/n1")
    reconcile(api)
    assert api.names == ["slurm/c1/17.0/n1"]


def test_a_lease_that_cannot_be_released_does_not_keep_the_others(slurm):
    slurm("")
    api = Api("slurm/c1/17.0/n1", "slurm/c1/18.0/n1", "slurm/c1/19.0/n1")
    api.refused = ["slurm/c1/18.0/n1"]
    with pytest.raises(ClientError, match=r"not released: slurm/c1/18\.0/n1, .*it changes"):
        reconcile(api)
    assert api.names == api.refused


def test_a_variable_that_narrows_what_squeue_lists_has_no_effect(slurm, monkeypatch):
    slurm("17|RUNNING|1000|n1\n")
    monkeypatch.setenv("SQUEUE_PARTITION", "main")
    api = Api("slurm/c1/17.0/n1")
    reconcile(api)
    assert api.names == ["slurm/c1/17.0/n1"]


@pytest.mark.parametrize("user", [ROOT, SLURM])
def test_root_and_slurms_user_may_reconcile(slurm, monkeypatch, user):
    slurm("")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    api = Api("slurm/c1/18.0/n1")
    reconcile(api)
    assert api.names == []


def test_any_other_user_is_refused_because_slurm_may_hide_jobs(slurm, monkeypatch):
    slurm("")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    api = Api("slurm/c1/18.0/n1")
    with pytest.raises(ClientError, match=r"runs as root or SlurmUser \(slurm\) only: Slurm may"):
        reconcile(api)
    assert api.names == ["slurm/c1/18.0/n1"]


def test_a_lease_is_released_when_two_looks_a_grace_apart_find_no_job(slurm, tmp_path, monkeypatch):
    slurm("")
    api, now = Api("slurm/c1/18.0/n1"), 1000.0
    monkeypatch.setattr(controller.time, "time", lambda: now)
    reconcile(api, None, tmp_path / "state")
    now += controller.GRACE - 1
    reconcile(api, None, tmp_path / "state")
    assert api.names == ["slurm/c1/18.0/n1"]
    now += 1
    reconcile(api, None, tmp_path / "state")
    assert api.names == []


def test_a_job_that_slurm_has_forgotten_for_a_while_keeps_its_cgpus(slurm, tmp_path, monkeypatch):
    api, now = Api("slurm/c1/17.0/n1"), 1000.0
    monkeypatch.setattr(controller.time, "time", lambda: now)
    for listed in ("", "17|RUNNING|1000|n1\n", ""):
        slurm(listed)
        reconcile(api, 600, tmp_path / "state")
        now += 500
    assert api.names == ["slurm/c1/17.0/n1"]


def test_nothing_is_released_if_nothing_can_be_kept_in_the_folder(slurm, tmp_path):
    slurm("")
    api = Api("slurm/c1/18.0/n1")
    (tmp_path / "file").touch()
    with pytest.raises(ClientError, match="cannot be"):
        reconcile(api, 600, tmp_path / "file")
    assert api.names == ["slurm/c1/18.0/n1"]


@pytest.mark.parametrize("damaged", ["", "[1]", '{"a": {}}', '{"a": "b"}', "\x00", "3"])
def test_a_damaged_file_counts_as_none(tmp_path, damaged):
    (tmp_path / "sightings.json").write_text(damaged)
    assert sightings.read(tmp_path / "sightings.json") == {}


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "new" / "sightings.json"
    assert sightings.read(path) == {}
    sightings.write(path, {"a": 12.5})
    assert sightings.read(path) == {"a": 12.5}
    assert [each.name for each in path.parent.iterdir()] == ["sightings.json"]


def test_a_clock_that_was_set_back_does_not_keep_a_lease_for_ever():
    since = sightings.update({"a": 5000.0}, ["a", "b"], 100.0)
    assert since == {"a": 100.0, "b": 100.0}
    assert sightings.due(since, 600, 700.0) == ["a", "b"]


def test_an_answer_without_slurms_user_is_refused():
    with pytest.raises(jobs.JobError, match="which user SlurmUser is"):
        jobs.slurm_user_of("SlurmUser = slurm\n")
    with pytest.raises(jobs.JobError, match="does not print SlurmUser"):
        jobs.slurm_user_of("ClusterName = c1\n")


def test_a_program_of_slurm_that_fails_is_named(slurm, tmp_path):
    (tmp_path / "squeue").write_text("#!/bin/sh\necho no controller >&2; exit 1\n")
    with pytest.raises(ClientError, match="squeue failed: no controller"):
        scheduler.jobs()
