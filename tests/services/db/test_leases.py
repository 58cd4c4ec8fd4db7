# SPDX-License-Identifier: Apache-2.0
"""Leases are read, listed and moved alike on every database that GSaaS supports."""

import pytest

from tests.unit.db.test_leases import *  # noqa: F403 (the same specification)

pytestmark = pytest.mark.services
