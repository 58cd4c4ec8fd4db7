# SPDX-License-Identifier: Apache-2.0
"""A real message bus, started when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.rabbitmq import RabbitMQ


@pytest.fixture(scope="session")
def broker() -> Iterator[RabbitMQ]:
    """One for all modules; a test that kills it starts it again."""
    with RabbitMQ() as broker:
        yield broker
