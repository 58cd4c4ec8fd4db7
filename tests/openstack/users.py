# SPDX-License-Identifier: Apache-2.0
"""What `./dev test users` runs: tests with the tools of others, which have to be installed and take minutes."""

from __future__ import annotations

import pytest

pytestmark = [
    pytest.mark.openstack,
    pytest.mark.timeout(1800),
    pytest.mark.users,
    pytest.mark.usefixtures("all_released"),
]
