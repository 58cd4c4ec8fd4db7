# SPDX-License-Identifier: Apache-2.0
"""The numbers in the pages about the studies are those that the benchmark measured."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from studies import document
from studies.recipes import malleable_2018


@pytest.mark.parametrize("page", document.PAGES, ids=lambda page: page.parent.name)
def test_every_table_of_results_is_what_the_benchmark_wrote(page: Path):
    text = page.read_text()
    assert document.fill(text, document.read()) == text


def test_every_table_is_on_one_page():
    texts = "".join(page.read_text() for page in document.PAGES)
    assert sorted(re.findall(r"<!-- sim: ([a-z-]+) -->", texts)) == sorted(document.TABLES)


def test_results_are_stored_rounded_with_a_row_in_each_line(tmp_path: Path):
    results = {"seeds": 2, "rows": [{"name": "a", "runs": [1 / 3, 20000 / 3]}, {"name": "ü"}]}
    document.write("openb", results, tmp_path)
    stored = {"seeds": 2, "rows": [{"name": "a", "runs": [0.3333333, 6666.667]}, {"name": "ü"}]}
    assert document.read(tmp_path) == {"openb": stored}
    assert len((tmp_path / "openb.json").read_text().splitlines()) == 7


def test_the_picture_is_what_the_benchmark_drew():
    drawn = document.frontier(document.read())
    assert document.PICTURE.read_text() == drawn
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
    text = (document.STUDIES / "hpc" / "README.md").read_text()
    changed = text.replace("| 100 | fixed | ", "| 100 | fixed | 1", 1)
    assert changed != text
    assert document.fill(changed, document.read()) == text


@pytest.mark.slow
def test_stored_results_are_those_of_the_recipes():
    """The smallest workload, with all the seeds that the stored row has."""
    stored = document.read()["malleable"]
    seeds = malleable_2018.SEEDS[: stored["seeds"]]
    rows = [row.to_dict() for row in malleable_2018.run([100], seeds)]
    for row, before in zip(rows, stored["rows"], strict=False):
        assert document.rounded(row) == pytest.approx(before)
