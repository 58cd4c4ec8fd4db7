# SPDX-License-Identifier: Apache-2.0
"""Changes are told after their commit alike on every database that GSaaS supports."""

import pytest

from tests.unit.db.test_changes import *  # noqa: F403 (the same specification)

pytestmark = pytest.mark.services
