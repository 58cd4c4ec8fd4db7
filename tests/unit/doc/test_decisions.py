# SPDX-License-Identifier: Apache-2.0
"""The records of decisions: each is dated, has a status, is a page at most, and is in the list of its part."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest

DOC = Path(__file__).resolve().parents[3] / "doc"
RECORDS = sorted((DOC / "decisions").glob("*.md"))
INDEX = (DOC / "decisions.md").read_text(encoding="utf-8")
PAGE = 500
"""Words."""
LISTED = re.compile(r"^- (\S+) \[(.+)\]\(decisions/(\S+)\)( \(superseded\))?$", re.MULTILINE)
RECORD = re.compile(
    r"# (?P<title>.+)\n\n"
    r"- Date: (?P<date>\d{4}-\d\d-\d\d)\n"
    r"- Status: (?P<status>accepted|superseded by \[.+\]\((?P<by>\S+)\))\n"
    r"- Part: \[(?P<part>.+)\]\(\.\./decisions\.md#[\w-]+\)\n\n"
    r"(?P<text>.+)",
    re.DOTALL,
)


def parts() -> dict[str, list[tuple[str, ...]]]:
    """Return the lines of the index by part: date, title, file, and whether it is marked as superseded."""
    _, *found = INDEX.split("\n## ")
    return {part.partition("\n")[0]: LISTED.findall(part) for part in found}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_a_date_a_status_and_reasons_and_is_in_the_list_of_its_part(path: Path):
    record = RECORD.fullmatch(path.read_text(encoding="utf-8"))
    assert record
    datetime.date.fromisoformat(record["date"])
    assert path.name.startswith(record["date"])
    assert 10 < len(record["text"].split()) <= PAGE
    marked = " (superseded)" if record["by"] else ""
    assert parts()[record["part"]].count((record["date"], record["title"], path.name, marked)) == 1
    if record["by"]:
        assert (path.parent / record["by"]).exists()


def test_a_decision_is_written_into_a_record_and_not_into_the_index():
    _, *lists = INDEX.rpartition("```{toctree}")[0].split("\n## ")
    lines = [line for part in lists for line in part.splitlines()[1:] if line]
    assert [line for line in lines if not LISTED.fullmatch(line)] == []


def test_the_lists_name_every_record_once():
    assert sorted(file for listed in parts().values() for _, _, file, _ in listed) == [
        path.name for path in RECORDS
    ]
