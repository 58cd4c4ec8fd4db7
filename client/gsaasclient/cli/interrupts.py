# SPDX-License-Identifier: Apache-2.0
"""Signals that end a command: they give it the time to return what it took."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_keyboard_interrupt(*signals: signal.Signals) -> Iterator[None]:
    """Within the block, raise `KeyboardInterrupt` for these signals, as Ctrl-C does; those that are ignored stay so."""

    def interrupt(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(f"interrupted by {signal.Signals(number).name}")

    heeded = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
