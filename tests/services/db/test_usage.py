# SPDX-License-Identifier: Apache-2.0
"""History is read alike on every database that GSaaS supports."""

import pytest

from tests.unit.db.test_usage import *  # noqa: F403 (the same specification)

pytestmark = pytest.mark.services
