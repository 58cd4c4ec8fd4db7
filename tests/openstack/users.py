# SPDX-License-Identifier: Apache-2.0
"""What `./dev test users` runs: tests with the tools of others, which have to be installed and take minutes."""

from __future__ import annotations

import os

import pytest

RUN = os.environ.get("GSAAS_TEST_USERS") == "all"

pytestmark = [
    pytest.mark.openstack,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not RUN, reason="./dev test users runs this"),
    pytest.mark.usefixtures("all_released"),
]
