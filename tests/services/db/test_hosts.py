# SPDX-License-Identifier: Apache-2.0
"""Hosts come, are listed and are disabled alike on every database that GSaaS supports."""

import pytest

from tests.unit.db.test_hosts import *  # noqa: F403 (the same specification)

pytestmark = pytest.mark.services
