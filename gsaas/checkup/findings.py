# SPDX-License-Identifier: Apache-2.0
"""The findings of a check-up, and whether they are failures. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How severe a finding is."""

    OK = "ok"
    WARN = "warn"
    """GSaaS works, but not on every host, or not for much longer."""
    FAIL = "fail"
    """GSaaS does not work until this is repaired."""


@dataclass(frozen=True)
class Finding:
    """The result of one check: a line of `gsaas-manage check`, or an object of its JSON."""

    part: str
    """What was checked: `database`."""
    level: Level
    said: str
    """What was found, in one sentence."""
    todo: str | None = None
    """What to do about it; None if nothing needs to be done."""


def ok(part: str, said: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(part, Level.OK, said)


def warn(part: str, said: str, todo: str) -> Finding:
    """Return a finding of level WARN."""
    return Finding(part, Level.WARN, said, todo)


def fail(part: str, said: str, todo: str) -> Finding:
    """Return a finding of level FAIL."""
    return Finding(part, Level.FAIL, said, todo)


def reason(error: BaseException) -> str:
    """Return the innermost message of the operating system or of TLS among the causes of *error*; else its own text."""
    cause: BaseException | None = error
    while cause is not None:
        # ssl.SSLCertVerificationError has a `verify_message`; every OSError has a `strerror`.
        message: str | None = getattr(cause, "verify_message", None) or getattr(
            cause, "strerror", None
        )
        if message:
            return message
        cause = cause.__cause__ or cause.__context__
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def failed(findings: Iterable[Finding]) -> bool:
    """Return whether any of *findings* keeps GSaaS from working."""
    return any(finding.level is Level.FAIL for finding in findings)
