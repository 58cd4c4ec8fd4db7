# SPDX-License-Identifier: Apache-2.0
"""Every process of GSaaS runs on the operating system's threads, although eventlet is installed with oslo.service."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import requires

import pytest

SCRIPT = """\
import json, sys
from gsaas import rpc
from oslo_service import backend
import futurist
print(json.dumps({
    "backend": backend.get_backend_type().value,
    "eventlet": [name for name, module in sys.modules.items() if name.startswith("eventlet") and module],
}))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    """What a process finds that has imported the message bus."""
    output = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    return json.loads(output.stdout)


def test_the_message_bus_runs_on_threads(found: dict[str, object]) -> None:
    assert found["backend"] == "threading"


def test_no_part_of_eventlet_is_loaded(found: dict[str, object]) -> None:
    assert found["eventlet"] == []


def test_oslo_service_still_installs_eventlet() -> None:
    """When this fails, gsaas/rpc/threads.py is needed no longer."""
    needed = [line for line in requires("oslo.service") or () if line.startswith("eventlet")]
    assert needed
