# SPDX-License-Identifier: Apache-2.0
"""Text of others as it may be logged and shown: what a daemon prints, or a host reports. Pure."""

from __future__ import annotations


def one_line(text: str, longest: int) -> str:
    """Return *text* as one line of at most *longest* characters, without control characters.

    A character that is not printable becomes U+FFFD, and what is too long ends with an ellipsis.
    """
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in cut)
