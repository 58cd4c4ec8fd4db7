# SPDX-License-Identifier: Apache-2.0
"""How many inputs Hypothesis tries, 100 for each test and fewer in `./dev test quick`, and no search for garbage where
there is none.
"""

from __future__ import annotations

import gc

import hypothesis

hypothesis.settings.register_profile("thorough", deadline=None)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=10)
# What pytest is told with --hypothesis-profile comes later.
hypothesis.settings.load_profile("thorough")

gc.disable()


def pytest_collection_finish() -> None:
    """What was imported and collected stays; only what tests make becomes garbage."""
    gc.freeze()
    gc.enable()
