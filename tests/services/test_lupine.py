# SPDX-License-Identifier: Apache-2.0
"""LUPINE's own server and client, in front of the fake CUDA driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from gsaas.gpu_host.daemons import health
from gsaas.objects.daemon import Daemon
from gsaas.prove import program, verdicts
from gsaas.prove.verdicts import Ran, Verdict
from tests.support import lupine
from tests.support.cuda.driver import FIRST, SECOND
from tests.support.lupine import Lupine
from tests.support.waiting import PATIENCE

CHECKS = 300


@pytest.fixture(scope="module")
def middleware() -> Lupine:
    try:
        return lupine.built()
    except lupine.NotBuildable as reason:
        pytest.skip(str(reason))


def ran(environment: dict[str, str], *words: str) -> dict:
    done = subprocess.run(
        [sys.executable, program.__file__, *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_it_is_healthy_however_often_it_is_asked(middleware):
    """It hangs up after its answer, and that was taken for a failure 1 to 18 times of 100."""
    with middleware.serving() as (address, port):
        for _ in range(CHECKS):
            assert health.http2(address, Daemon("GPU-0", port)) is not None


def test_a_program_computes_right_through_it(middleware):
    with middleware.serving(FAKE_CUDA_GPUS=FIRST) as server:
        found = ran(middleware.environment(server), "compute")
    assert (found["failed"], found["uuid"]) == ([], FIRST)


def test_one_server_shows_both_of_its_gpus_and_a_program_computes_right_on_each(middleware):
    """So one daemon serves all cGPUs of a lease, and `LUPINE_SERVER` names it once."""
    both = f"{FIRST},{SECOND}"
    with middleware.serving(FAKE_CUDA_GPUS=both, CUDA_VISIBLE_DEVICES=both) as server:
        found = [ran(middleware.environment(server), "compute", device) for device in "01"]
    assert [(each["failed"], each["uuid"], each["devices"]) for each in found] == [
        ([], FIRST, 2),
        ([], SECOND, 2),
    ]


def test_a_limit_on_the_server_holds_for_its_client(middleware):
    with middleware.serving(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=256M") as server:
        found = ran(middleware.environment(server), "exceed", "256")
    (line, _) = verdicts.limited(256, Ran(found), Ran({"rounds": 1}), way="library")
    assert line.verdict is Verdict.OK


@pytest.mark.parametrize(
    ("variables", "verdict"), [({}, "ok"), ({"FAKE_CUDA_EQUAL_POINTERS": "1"}, "warn")]
)
def test_equal_pointers_of_two_servers_are_found(middleware, variables, verdict):
    """The reason for which one daemon serves all cGPUs of a lease."""
    with (
        middleware.serving(FAKE_CUDA_GPUS=FIRST, **variables) as first,
        middleware.serving(FAKE_CUDA_GPUS=SECOND, **variables) as second,
    ):
        found = [ran(middleware.environment(server), "pointers", "8") for server in (first, second)]
    assert verdicts.pointers(found).verdict == verdict
