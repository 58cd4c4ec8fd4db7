# SPDX-License-Identifier: Apache-2.0
"""How many inputs Hypothesis tries for each test: 30, fewer in `./dev test quick`, more in `./dev test thorough`.

And no search for garbage where there is none.
"""

from __future__ import annotations

import gc

import hypothesis

for profile, inputs in (("quick", 10), ("usual", 30), ("thorough", 500)):
    hypothesis.settings.register_profile(profile, deadline=None, max_examples=inputs)
# What pytest is told with --hypothesis-profile comes later.
hypothesis.settings.load_profile("usual")

gc.disable()


def pytest_collection_finish() -> None:
    """What was imported and collected stays; only what tests make becomes garbage."""
    gc.freeze()
    gc.enable()
