# SPDX-License-Identifier: Apache-2.0
"""Where leases have to end, those of Slurm's jobs do so after the jobs' time limits."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gsaasclient import ApiError, ClientError
from gsaasclient.cli.slurm import controller, jobs

CALLED = {
    "SLURM_CLUSTER_NAME": "c1",
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_UID": "1000",
    "SLURM_JOB_NODELIST": "n1",
    "SPANK_GSAAS_CGPUS": "1",
}
SQUEUE = """#!/bin/sh
for word; do
    case "$word" in
    --format=%A\\|%i\\|%V) echo '17|17|2026-11-01T12:00:00' ;;
    --format=%A\\|%T\\|%U\\|%N) echo '17|CONFIGURING|1000|n1' ;;
    --format=%A\\|%l) echo '17|LIMIT' ;;
    esac
done
"""


class Api:
    """Makes leases that are ACTIVE; those without an end are refused if it *demands* one."""

    def __init__(self, *, demands: bool) -> None:
        self.demands = demands
        self.asked: list[dict[str, Any]] = []

    def launch(self, lease: dict[str, Any], key: str) -> dict[str, Any]:
        self.asked.append(lease)
        if self.demands and "duration" not in lease:
            raise ApiError(400, code="gsaas.lease.end.missing", detail="a lease needs an end here")
        return {"lease": lease | {"id": "l", "status": "ACTIVE"}}

    def request(self, *_words: Any, **_options: Any) -> Any:
        return None


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Has job 17 with this time limit, and records the commands that change something."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def put(name: str, text: str) -> None:
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def make(limit: str) -> Path:
        put("squeue", SQUEUE.replace("LIMIT", limit))
        put("scontrol", '#!/bin/sh\n[ "$2" != hostnames ] || echo "$3"\n')
        put("scancel", f'#!/bin/sh\necho "$@" >> {tmp_path}/cancelled\n')
        return tmp_path / "cancelled"

    return make


def prepare(api: Api) -> int:
    args = SimpleNamespace(domain=None, wait=None)
    return controller.prolog(api, args, CALLED)


def test_a_lease_has_no_end_where_none_is_demanded(slurm):
    slurm("1:00:00")
    api = Api(demands=False)
    assert prepare(api) == 0
    assert ["duration" in each for each in api.asked] == [False]


def test_where_one_is_demanded_it_ends_an_hour_after_the_jobs_limit(slurm):
    cancelled = slurm("1-00:30:00")
    api = Api(demands=True)
    assert prepare(api) == 0
    assert api.asked[-1]["duration"] == 24 * 3600 + 1800 + 3600
    assert not cancelled.exists()


def test_a_job_without_a_limit_is_cancelled_there(slurm):
    cancelled = slurm("UNLIMITED")
    with pytest.raises(ClientError, match="submit it with --time"):
        prepare(Api(demands=True))
    assert cancelled.read_text() == "17\n"


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("0:30", 30), ("30:00", 1800), ("1:00:00", 3600), ("2-00:00:00", 172800)],
)
def test_time_limits_are_read_as_squeue_writes_them(limit, seconds):
    assert jobs.time_limit(f"16|1:00\n17|{limit}\n", "17") == seconds
