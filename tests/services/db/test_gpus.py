# SPDX-License-Identifier: Apache-2.0
"""The inventory of GPUs is kept alike on every database that GSaaS supports."""

import pytest

from tests.unit.db.test_gpus import *  # noqa: F403 (the same specification)

pytestmark = pytest.mark.services
