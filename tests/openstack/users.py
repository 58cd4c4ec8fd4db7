# SPDX-License-Identifier: Apache-2.0
"""What `./dev test users` runs: tests with the tools of others, which have to be installed and take minutes."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [
    pytest.mark.openstack,
    pytest.mark.timeout(1800),
    pytest.mark.users,
    pytest.mark.usefixtures("all_released"),
]


def lease_of(gpus: Any, server: Any) -> Any:
    """Return the lease of a server, as its owner sees it; None if it has none."""
    return next(
        (lease for lease in gpus.leases() if (lease.server or {}).get("id") == server.id), None
    )
