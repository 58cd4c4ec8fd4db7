# SPDX-License-Identifier: Apache-2.0
"""The exit statuses of `gsaas`, by which scripts distinguish its outcomes."""

from __future__ import annotations

DONE, FAILED, WRONG_USAGE, BUSY, IMPOSSIBLE, INTERRUPTED = 0, 1, 2, 3, 4, 130
RUN_FAILED = 125
"""The status of `gsaas run` in place of `FAILED`: its command may itself exit with 1."""

STATUS_OF_ERROR_CODE = {
    "gsaas.bad-request": WRONG_USAGE,
    "gsaas.lease.end.in-past": WRONG_USAGE,
    "gsaas.lease.end.missing": WRONG_USAGE,
    "gsaas.capacity.busy": BUSY,
    "gsaas.capacity.impossible": IMPOSSIBLE,
}
"""By error code of the API; any other code gives `FAILED`."""


def status_of(error_code: str | None) -> int:
    """Return the exit status for an error of the API with this code."""
    return STATUS_OF_ERROR_CODE.get(error_code or "", FAILED)
