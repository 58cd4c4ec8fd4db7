# SPDX-License-Identifier: Apache-2.0
"""`./dev demo` from its start to its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.kernel


def test_every_proof_of_the_demonstration_holds_and_nothing_is_left():
    done = subprocess.run(
        [sys.executable, "-m", "gsaas.standalone.demo"], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for command in (
        "$ gsaas -l -ncgpus=2\n",
        "$ gsaas -l -ncgpus=2 -poolmem=2048 -mode=shared\n",
        "$ gsaas -l -ncgpus=8 -poolmem=4096 -mode=shared -locality=local\n",
        "$ gsaas -l -ncgpus=2 -locality=local\n",
        "$ gsaas -t -id=",
    ):
        assert command in done.stdout
    assert "FAILS" not in done.stdout
    assert "holds  nothing of GSaaS is left among its network namespaces" in done.stdout
    assert done.stdout.rstrip().endswith("Every proof held.")
