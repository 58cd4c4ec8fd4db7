# SPDX-License-Identifier: Apache-2.0
"""What processes log is seen whole, and the story has what can be read of it."""

from __future__ import annotations

import logging
import random

import pytest

from tests.world import baton, rules
from tests.world.story import Log, Story

SECRET = "token-of-the-member"


@pytest.fixture
def story(monkeypatch) -> Story:
    monkeypatch.setattr(baton, "scheduler", baton.Scheduler(random.Random(1)))
    return Story()


@pytest.fixture
def logged(story):
    texts: list[str] = []
    with Log(story, lambda _: None, texts.append).listening():
        yield texts


def _fail_with_a_secret() -> None:
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        raise RuntimeError("refused") from error


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.WARNING])
def test_a_secret_in_a_later_line_of_a_message_is_seen(logged, level):
    logging.getLogger("gsaas.api").log(level, "a request with\nits token: %s", SECRET)
    assert len(list(rules.secrets_are_kept(logged, [SECRET]))) == 1


def test_a_secret_in_the_cause_of_an_exception_is_seen(logged):
    try:
        _fail_with_a_secret()
    except RuntimeError:
        logging.getLogger("gsaas.engine").exception("the audit failed")
    assert len(list(rules.secrets_are_kept(logged, [SECRET]))) == 1


def test_what_a_library_warns_of_is_seen(logged):
    logging.getLogger("oslo_db.api").warning("tried again with %s", SECRET)
    assert len(list(rules.secrets_are_kept(logged, [SECRET]))) == 1


def test_the_story_has_the_first_line_of_what_gsaas_warns_of(logged, story):
    logging.getLogger("gsaas.api").info("a request")
    logging.getLogger("oslo_db.api").warning("tried again")
    logging.getLogger("gsaas.api").warning("refused\nbecause of its quota")
    [line] = story.lines
    assert line.endswith("  log: refused")
