# SPDX-License-Identifier: Apache-2.0
"""Settings are kept alike on every database that GSaaS supports."""

import pytest

from tests.unit.db.test_settings import *  # noqa: F403 (the same specification)

pytestmark = pytest.mark.services
