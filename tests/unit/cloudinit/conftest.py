# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

import pytest

from tests.support.cloud_init import CloudInit


@pytest.fixture(scope="session")
def cloud_init() -> Iterator[CloudInit]:
    """cloud-init's own code, asked in a process of its own."""
    running = CloudInit()
    yield running
    running.close()
