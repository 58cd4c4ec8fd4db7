# SPDX-License-Identifier: Apache-2.0
"""What the programs of all middlewares do with a session, which is their connection to a daemon."""

from __future__ import annotations

import abc
import array
import json
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

SIDE = 64
"""Rows and columns of the matrices."""
SHIFT = 5
PAUSE = 0.01
"""Seconds between two products of a program without an end, so that others compute meanwhile."""
END = {signal.SIGTERM}
"""The signal that ends such a program."""


class RefusedError(Exception):
    """The daemon did not do what it was asked; the text says what the program was told."""


class Session(abc.ABC):
    """A connection to a daemon. A library may end the process where the connection ends."""

    @abc.abstractmethod
    def allocate(self, mib: int) -> None:
        """Take so many MiB more of the device; raises `RefusedError`."""

    @abc.abstractmethod
    def multiply(self, left: array.array[float], right: array.array[float]) -> array.array[float]:
        """Return the product of two matrices of `SIDE` rows and columns; raises `RefusedError`."""


def main(connect: Callable[[], Session]) -> int:
    """Run what the command line says; return the exit status. *connect* raises `OSError` without client or daemon."""
    words = sys.argv[1:]
    if words[0] == "compute":
        # Between two products alone, SIGTERM is looked for: a library may take a call that a signal interrupts for the
        # end of its daemon, as ggml's does. Blocked before threads of the session start, which inherit that.
        signal.pthread_sigmask(signal.SIG_BLOCK, END)
    try:
        session = connect()
    except OSError as error:
        return _tell({"error": f"the middleware cannot be used: {error}"})
    if words[0] == "exceed":
        return _tell(exceed(session, int(words[1])))
    return _tell(compute(session))


def exceed(session: Session, limit_mib: int) -> dict[str, Any]:
    """Allocate in steps, up to twice *limit_mib*; say when that was refused.

    After a refusal, `computes` says whether the session can still be used.
    """
    step = max(1, limit_mib // 16)
    allocated = 0
    while allocated < 2 * limit_mib:
        # Said before: its library may end this process.
        _tell({"allocated_mb": allocated, "asked_mb": allocated + step})
        try:
            session.allocate(step)
        except RefusedError as refusal:
            return {
                "allocated_mb": allocated,
                "asked_mb": allocated + step,
                "refused": str(refusal),
                "computes": _computes(session),
            }
        allocated += step
    return {"allocated_mb": allocated, "asked_mb": allocated, "refused": None}


def compute(session: Session) -> dict[str, Any]:
    """Multiply until SIGTERM, which is blocked, and then once more."""
    rounds, longest, asked = 0, 0.0, False
    while True:
        began = time.perf_counter()
        try:
            right = _is_right(session, rounds)
        except RefusedError as refusal:
            return {"rounds": rounds, "longest_s": longest, "error": str(refusal)}
        if not right:
            failed = ["a matrix product is wrong"]
            return {"rounds": rounds, "longest_s": longest, "failed": failed}
        longest = max(longest, time.perf_counter() - began)
        rounds += 1
        if rounds == 1:
            _tell({"computing": True})
        if asked:
            return {"rounds": rounds, "longest_s": longest, "failed": []}
        asked = signal.sigtimedwait(END, PAUSE) is not None


def _is_right(session: Session, number: int) -> bool:
    """Return whether the product of a matrix and a permutation is what it has to be, bit by bit."""
    cells = SIDE * SIDE
    left = array.array("f", [float((index + number) % 251) for index in range(cells)])
    right = array.array("f", bytes(4 * cells))
    for row in range(SIDE):
        right[row * SIDE + (row + SHIFT) % SIDE] = 1.0
    expected = array.array("f")
    for row in range(SIDE):
        line = left[row * SIDE : (row + 1) * SIDE]
        expected += line[SIDE - SHIFT :] + line[: SIDE - SHIFT]
    return session.multiply(left, right) == expected


def _computes(session: Session) -> bool:
    try:
        return _is_right(session, 0)
    except RefusedError:
        return False


def _tell(result: dict[str, Any]) -> int:
    print(json.dumps(result), flush=True)  # noqa: T201
    return 1 if "error" in result else 0
