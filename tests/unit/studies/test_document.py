# SPDX-License-Identifier: Apache-2.0
"""The numbers of doc/simulator.md are those that the benchmark measured."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from studies import document
from studies.recipes import malleable_2018

DOCUMENT = Path(__file__).parents[3] / "doc" / "simulator.md"


def test_every_table_of_results_is_what_the_benchmark_wrote():
    text = DOCUMENT.read_text()
    assert document.fill(text, document.read()) == text
    assert text.count("<!-- sim: ") == len(document.TABLES)


def test_the_picture_is_what_the_benchmark_drew():
    drawn = document.frontier(document.read())
    assert (DOCUMENT.parent / "simulator-frontier.svg").read_text() == drawn
    picture = ElementTree.fromstring(drawn)  # noqa: S314 - our own
    titles = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert any(title.startswith("local-gradient, no core") for title in titles)


def test_every_row_stands_for_as_many_seeds_as_its_part():
    for part, results in document.read().items():
        for row in results["rows"]:
            for name, runs in row.items():
                if name == "runs" or name.endswith("_runs"):
                    assert len(runs) == results["seeds"], (part, row)


def test_a_number_that_was_changed_by_hand_is_found():
    text = DOCUMENT.read_text()
    changed = text.replace("| 100 | fixed | ", "| 100 | fixed | 1", 1)
    assert changed != text
    assert document.fill(changed, document.read()) == text


def test_stored_results_are_those_of_the_recipes():
    """The smallest workload, with all the seeds that the stored row has."""
    stored = document.read()["malleable"]
    seeds = malleable_2018.SEEDS[: stored["seeds"]]
    rows = [row.to_dict() for row in malleable_2018.run([100], seeds)]
    for row, before in zip(rows, stored["rows"], strict=False):
        assert row == pytest.approx(before)
