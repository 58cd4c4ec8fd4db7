# SPDX-License-Identifier: Apache-2.0
"""doc/notifications.md lists every notification, and its examples are as the schemas say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gsaas.notifications import cadf, events, schemas
from tests.support.notifications import SCHEMAS, expect_valid

PAGE = (Path(__file__).parents[3] / "doc" / "notifications.md").read_text(encoding="utf-8")
EXAMPLES = {
    kind: json.loads(text)
    for kind, text in re.findall(
        r"### `([a-z.]+)`\n(?:(?!###).)*?```json\n(.*?)```", PAGE, re.DOTALL
    )
}
FIRST = {"lease": events.CREATE_END, "reservation": "reservation.create"}
"""What a notification is about -> the one whose example is written out."""
SECURITY = {cadf.AUTHENTICATE, cadf.ACCESS, cadf.GRANT, cadf.CHANGE}


def test_the_tables_list_every_notification_with_its_priority():
    listed = dict(re.findall(r"^\| `([a-z.]+)` \| (info|warn|error) \|", PAGE, re.MULTILINE))
    assert listed == events.PRIORITIES
    assert set(re.findall(r"^\| `(audit[a-z.]+)` \|", PAGE, re.MULTILINE)) == SECURITY


def test_every_notification_has_an_example():
    assert EXAMPLES.keys() == events.PRIORITIES.keys() | SECURITY
    assert PAGE.count("```json") == len(EXAMPLES)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_example_is_valid(kind: str):
    example = EXAMPLES[kind]
    first = FIRST.get(kind.partition(".")[0], kind)
    if kind != first:
        whole = EXAMPLES[first]
        data = whole["gsaas_object.data"]
        assert example.keys() <= data.keys()
        example = {**whole, "gsaas_object.data": data | example}
    expect_valid(kind, example)


def test_every_payload_has_a_schema_of_its_version():
    versions = {
        name: schema["properties"]["gsaas_object.version"]["const"]
        for name, schema in SCHEMAS.items()
        if name != "SecurityEvent"
    }
    assert versions == schemas.VERSIONS
    for name in SCHEMAS:
        assert f"[{name}](notification-schemas/{name}.json)" in PAGE
