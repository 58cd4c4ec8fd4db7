# SPDX-License-Identifier: Apache-2.0
"""Endpoints are known alike on every database that GSaaS supports."""

import pytest

from tests.unit.db.test_endpoints import *  # noqa: F403 (the same specification)

pytestmark = pytest.mark.services
