# SPDX-License-Identifier: Apache-2.0
"""The same states are refused, and the same accepted, by every database that GSaaS supports."""

import pytest

from tests.unit.db.test_models import *  # noqa: F403 (the same specification)

pytestmark = pytest.mark.services
