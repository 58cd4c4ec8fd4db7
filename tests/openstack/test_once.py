# SPDX-License-Identifier: Apache-2.0
"""Steps that are done once, whoever asks for them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.openstack.bed.once import once


def test_a_step_is_done_again_only_if_it_is_made_from_something_else(tmp_path: Path):
    done: list[str] = []
    for made_from in ("a", "a", "b"):
        once(
            tmp_path / "new" / "stamp",
            made_from,
            lambda made_from=made_from: done.append(made_from),
        )
    assert done == ["a", "b"]


def test_a_step_that_failed_is_done_again(tmp_path: Path):
    done: list[str] = []
    with pytest.raises(ZeroDivisionError):
        once(tmp_path / "stamp", "a", lambda: 1 / 0)
    once(tmp_path / "stamp", "a", lambda: done.append("a"))
    assert done == ["a"]


def test_of_two_that_come_at_once_one_does_it_and_the_other_waits(tmp_path: Path):
    done: list[str] = []
    at_work, second_comes = threading.Event(), threading.Event()

    def do() -> None:
        at_work.set()
        assert second_comes.wait(60)
        done.append("once")

    def second() -> int:
        assert at_work.wait(60)
        second_comes.set()
        once(tmp_path / "stamp", "a", do)
        return len(done)

    with ThreadPoolExecutor(2) as threads:
        first, other = threads.submit(once, tmp_path / "stamp", "a", do), threads.submit(second)
        first.result(120)
        assert other.result(120) == 1
