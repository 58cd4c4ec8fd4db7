# SPDX-License-Identifier: Apache-2.0
"""These tests run beside those of the bed's GSaaS, which they do not use.

They have a tenant of their own: its quotas, servers and networks are nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from openstack.connection import Connection

from tests.openstack.bed import settings


@pytest.fixture(scope="session")
def tenant(connect: Callable[[str], Connection]) -> Connection:
    return connect(settings.TENANT_OF_ENGINES)
