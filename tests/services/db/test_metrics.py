# SPDX-License-Identifier: Apache-2.0
"""The sums behind the metrics are the same on every database that GSaaS supports."""

import pytest

from tests.unit.db.test_metrics import *  # noqa: F403 (the same specification)

pytestmark = pytest.mark.services
