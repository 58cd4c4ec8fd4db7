# SPDX-License-Identifier: Apache-2.0
"""Reading what the kernel says about listeners, as text."""

from __future__ import annotations

from gsaas.gpu_host.daemons.ports import has_listener


def test_listeners_are_told_from_connections():
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue\n"
        "   0: 0100007F:4E20 00000000:0000 0A 00000000:00000000\n"
        "   1: 0100007F:4E21 0100007F:9999 01 00000000:00000000\n"
    )
    assert [has_listener(table, port) for port in (20000, 20001, 20002)] == [True, False, False]
