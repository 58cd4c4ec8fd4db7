# SPDX-License-Identifier: Apache-2.0
"""Private names of oslo.messaging that gsaas.rpc.queues uses.

tests/services/processes/test_queues.py asks a real RabbitMQ.
"""

from __future__ import annotations

import inspect

import pytest
from oslo_messaging._drivers import common, impl_rabbit
from oslo_messaging._drivers.impl_rabbit import RabbitDriver

import gsaas.conf
from gsaas import rpc
from gsaas.rpc.queues import NotObservable, inspect_queue


def test_a_bus_without_queues_to_look_at_says_so(bus: rpc.Bus) -> None:
    with pytest.raises(
        NotObservable, match="InProcessDriver does not report the contents of its queues"
    ):
        inspect_queue(bus, rpc.ENGINE)


def test_a_bus_leads_to_its_driver_and_this_to_a_connection() -> None:
    bus = rpc.connect(gsaas.conf.load(files=[]), "rabbit://guest:guest@127.0.0.1:1/")
    try:
        assert isinstance(bus._driver, RabbitDriver)
        assert "retry" in inspect.signature(bus._driver._get_connection).parameters
    finally:
        bus.cleanup()


def test_what_is_borrowed_has_a_connection_of_kombu() -> None:
    """`_get_connection` lends a ConnectionContext, its `connection` is the driver's, whose `connection` is kombu's."""
    assert "self.connection = " in inspect.getsource(common.ConnectionContext.__init__)
    assert "self.connection = kombu.connection.Connection(" in inspect.getsource(
        impl_rabbit.Connection.__init__
    )
