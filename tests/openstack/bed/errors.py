# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with the bed, said so that it can be mended."""

from __future__ import annotations


class BedError(Exception):
    """The message says what happened, to what, and what was tried."""
