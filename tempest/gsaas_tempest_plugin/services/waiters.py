# SPDX-License-Identifier: Apache-2.0
"""Wait until a lease has a status, or the options say that it took too long."""

from __future__ import annotations

import time
from typing import Any

from tempest.lib import exceptions

from gsaas_tempest_plugin.services.gpu_scheduling_client import GpuSchedulingClient


class LeaseFailed(exceptions.TempestException):
    """A lease has the status ERROR, which no test waits for."""

    message = "Lease %(lease_id)s failed: %(fault)s"


def wait_for_lease_status(client: GpuSchedulingClient, lease_id: str, status: str) -> Any:
    """Return the lease once it has *status*.

    Raises `LeaseFailed` if it has the status ERROR, and `TimeoutException` after [gpu_scheduling]build_timeout.
    """
    deadline = time.monotonic() + client.build_timeout
    while True:
        lease = client.show_lease(lease_id)["lease"]
        if lease["status"] == status:
            return lease
        if lease["status"] == "ERROR":
            raise LeaseFailed(lease_id=lease_id, fault=lease["fault"])
        if time.monotonic() >= deadline:
            raise exceptions.TimeoutException(
                f"Lease {lease_id} is {lease['status']}, not {status}, after {client.build_timeout} s"
            )
        time.sleep(client.build_interval)
