# SPDX-License-Identifier: Apache-2.0
"""How many corrections an engine makes at once."""

from __future__ import annotations

from contextlib import ExitStack

from gsaas.engine.corrections import Corrections
from gsaas.engine.rpc_endpoint import HANDLERS, MOST_CORRECTIONS


def test_of_one_kind_a_host_is_corrected_once_at_a_time():
    corrections = Corrections(most=10)
    with corrections.of("gpu1", "daemons") as first, corrections.of("gpu1", "daemons") as second:
        assert (first, second) == (True, False)
    with corrections.of("gpu1", "daemons") as third:
        assert third is True


def test_hosts_that_answer_slowly_do_not_occupy_every_handler():
    corrections = Corrections(most=2)
    with ExitStack() as slow:
        assert slow.enter_context(corrections.of("gpu1", "daemons"))
        assert slow.enter_context(corrections.of("gpu2", "daemons"))
        with corrections.of("gpu3", "daemons") as may_begin:
            assert may_begin is False
    with corrections.of("gpu3", "daemons") as may_begin:
        assert may_begin is True


def test_an_engine_keeps_half_of_its_handlers_for_messages_that_correct_nothing():
    assert MOST_CORRECTIONS * 2 == HANDLERS
