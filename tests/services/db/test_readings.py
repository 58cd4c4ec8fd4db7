# SPDX-License-Identifier: Apache-2.0
"""Readings are added up alike on every database that GSaaS supports."""

import pytest

from tests.unit.db.test_readings import *  # noqa: F403 (the same specification)

pytestmark = pytest.mark.services
