# SPDX-License-Identifier: Apache-2.0
"""What holds for all tests.

Hypothesis tries 30 inputs for each test, fewer in `./dev test quick`, always the same ones, so that a change is judged
by what it changes, not by luck. `./dev test thorough` tries 500, drawn anew. A run whose tests were all skipped fails.
There is no search for garbage where there is none. And programs that tests start get every signal, also where who
started the tests has them ignore some, as nohup and a shell's `&` do.
"""

from __future__ import annotations

import gc
import signal

import hypothesis
import pytest

for profile, inputs in (("quick", 10), ("usual", 30), ("thorough", 500)):
    hypothesis.settings.register_profile(
        profile, deadline=None, max_examples=inputs, derandomize=profile != "thorough"
    )
# What pytest is told with --hypothesis-profile comes later.
hypothesis.settings.load_profile("usual")

gc.disable()

for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) == signal.SIG_IGN:
        # This process goes on ignoring it. But what it starts has the default, which a handler becomes.
        signal.signal(number, lambda *_: None)


def pytest_collection_finish() -> None:
    """What was imported and collected stays; only what tests make becomes garbage."""
    gc.freeze()
    # A sixth of the processor time of tests/api went into looking for the little garbage that each test makes.
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Have tests fail that were all skipped: what they need is missing, and nothing was shown."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # a worker of xdist; its controller decides
        return
    seen = {outcome for outcome, reports in reporter.stats.items() if reports}
    if "skipped" in seen and seen.isdisjoint(("passed", "failed", "error", "xfailed", "xpassed")):
        reporter.write_line("\nall tests were skipped, which is a failure")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
