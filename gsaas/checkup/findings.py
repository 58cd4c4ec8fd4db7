"""What a check-up finds: values, and what they amount to."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    """It works, but not for everybody, or not for ever."""
    FAIL = "fail"
    """GSaaS does not work like this."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    part: str
    level: Level
    said: str
    todo: str | None = None
    """What to do about it; None where nothing is to be done."""


def ok(part: str, said: str) -> Finding:
    return Finding(part, Level.OK, said)


def warn(part: str, said: str, todo: str) -> Finding:
    return Finding(part, Level.WARN, said, todo)


def fail(part: str, said: str, todo: str) -> Finding:
    return Finding(part, Level.FAIL, said, todo)


def reason(error: BaseException) -> str:
    """What the operating system said, under all that libraries wrapped around it; else the error's own words."""
    cause: BaseException | None = error
    while cause is not None:
        if told := getattr(cause, "verify_message", None) or getattr(cause, "strerror", None):
            return told
        cause = cause.__cause__ or cause.__context__
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def failed(findings: Iterable[Finding]) -> bool:
    """Does anything keep GSaaS from working?"""
    return any(finding.level is Level.FAIL for finding in findings)
