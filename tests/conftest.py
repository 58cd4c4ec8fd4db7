"""How many inputs Hypothesis tries: 100 for each test, and fewer in `./dev test quick`."""

from __future__ import annotations

import hypothesis

hypothesis.settings.register_profile("thorough", deadline=None)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=20)
hypothesis.settings.load_profile(
    "thorough"
)  # what pytest is told with --hypothesis-profile comes later
