# SPDX-License-Identifier: Apache-2.0
"""Of two orders for a port the one with the larger serial counts, in whatever order they arrive."""

from __future__ import annotations

import pytest

from gsaas.rodvr.order_serials import OrderSerials, StaleOrderError


def carry_out(serials: OrderSerials, port_id: str, serial: int) -> None:
    serials.check(port_id, serial)
    serials.record(port_id, serial)


def test_an_older_order_for_the_same_port_is_stale():
    serials = OrderSerials()
    carry_out(serials, "a", 5)
    with pytest.raises(StaleOrderError, match="the order 4 for port a is older"):
        carry_out(serials, "a", 4)


def test_orders_for_different_ports_may_arrive_in_any_order():
    serials = OrderSerials()
    for port, serial in (("a", 5), ("b", 4), ("c", 3), ("a", 6)):
        carry_out(serials, port, serial)


def test_the_same_order_may_arrive_twice():
    serials = OrderSerials()
    carry_out(serials, "a", 5)
    carry_out(serials, "a", 5)


def test_what_was_replaced_makes_older_orders_stale_for_every_port():
    serials = OrderSerials()
    carry_out(serials, "a", 9)
    serials.replace(7)
    for port in ("a", "b"):
        with pytest.raises(StaleOrderError):
            carry_out(serials, port, 6)
    with pytest.raises(StaleOrderError):
        carry_out(serials, "a", 8)
    carry_out(serials, "b", 8)


def test_an_order_as_old_as_a_port_that_is_no_longer_remembered_is_stale():
    serials = OrderSerials(kept=2)
    for port, serial in (("a", 5), ("b", 6), ("c", 7)):
        carry_out(serials, port, serial)
    with pytest.raises(StaleOrderError):
        carry_out(serials, "a", 4)
    carry_out(serials, "d", 8)
