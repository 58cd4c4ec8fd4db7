"""What `gsaas` ends with: its exit statuses, for scripts to tell apart."""

from __future__ import annotations

DONE, FAILED, WRONG_USAGE, BUSY, IMPOSSIBLE, INTERRUPTED = 0, 1, 2, 3, 4, 130
RUN_FAILED = 125
"""What `gsaas run` ends with instead of `FAILED`, which is the command's to use."""

OF_CODES = {"gsaas.capacity.busy": BUSY, "gsaas.capacity.impossible": IMPOSSIBLE}
"""For errors of the API; any other is `FAILED`."""


def of_code(code: str | None) -> int:
    """The exit status for an error of the API with this code."""
    return OF_CODES.get(code or "", FAILED)
