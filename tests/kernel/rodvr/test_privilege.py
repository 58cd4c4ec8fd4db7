# SPDX-License-Identifier: Apache-2.0
"""CAP_NET_ADMIN, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.rodvr.lab import A, Lab

pytestmark = pytest.mark.kernel

ROOT = Path(__file__).parents[3]


@pytest.fixture
def unprivileged(lab: Lab) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        ["ip", "netns", "exec", lab.compute, sys.executable]
        + ["-m", "tests.kernel.rodvr.unprivileged"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.terminate()
    process.communicate()


def read_line(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def proceed(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_an_endpoint_needs_only_cap_net_admin(
    lab: Lab, unprivileged: subprocess.Popen[str]
) -> None:
    """Bind, cut a live connection, tear down, as the user nobody."""
    first = read_line(unprivileged)
    assert (first["uid"], first["capabilities"]) == (65534, 1 << 12)
    assert first["report"]["bindings"]["port-vm1"]["installed"]
    assert first["report"]["problems"] == []
    waiting = lab.wait("vm1", A)
    assert waiting.line().startswith("g1:8308")
    proceed(unprivileged)
    assert read_line(unprivileged)["report"]["problems"] == []
    assert waiting.rest() == ["ConnectionResetError"]
    assert lab.reaches("vm1", A) == "g2:8308"
    proceed(unprivileged)
    assert read_line(unprivileged) == {"done": True}
    assert "rodvr" not in lab.nft("list tables") + str(lab.ip_json("cmp", "link"))
    assert lab.sysctl("cmp", "ipv4/conf/gpu0/forwarding") == "0"
