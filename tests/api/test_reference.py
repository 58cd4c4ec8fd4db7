# SPDX-License-Identifier: Apache-2.0
"""The examples of doc/api.md are true, and it lists every error code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gsaas.api import errors
from tests.api.test_errors import families
from tests.api.world import CALLERS, token

REFERENCE = (Path(__file__).parents[2] / "doc" / "api.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"```http\n(?P<request>.*?)```\n\n```http\n(?P<answer>.*?)```", re.DOTALL)
CHANGING = {"id", "lease_id", "request_id", "Location"}
"""Fields whose values differ in every run."""


def read(message: str) -> tuple[str, dict[str, str], Any]:
    """Return the first line, the headers and the body of a message in the document."""
    head, _, body = message.partition("\n\n")
    first, *lines = head.strip().splitlines()
    return first, dict(line.split(": ", 1) for line in lines), json.loads(body) if body else None


def expect_shown(shown: Any, real: Any, new: dict[str, str], field: str = "") -> None:
    """Fail unless the response contains what the document shows; add its ids to *new*."""
    if field in CHANGING and shown is not None:
        assert isinstance(real, str)
        new[shown] = real
    elif isinstance(shown, dict):
        for name, value in shown.items():
            expect_shown(value, real[name], new, name)
    elif isinstance(shown, list):
        assert len(shown) == len(real), field
        for one, other in zip(shown, real, strict=True):
            expect_shown(one, other, new)
    else:
        assert shown == real, field


def test_the_examples_of_the_reference_are_what_happens(world):
    tokens = {f"${caller.upper()}": token(caller) for caller in CALLERS}
    new: dict[str, str] = {}
    examples = list(EXAMPLE.finditer(REFERENCE))
    assert len(examples) == REFERENCE.count("```http") / 2
    for example in examples:
        request = example["request"]
        for shown, real in new.items():
            request = request.replace(shown, real)
        first, headers, body = read(request)
        method, path = first.split(" ")
        caller = headers.pop("X-Auth-Token", None)
        if caller is not None:
            headers["X-Auth-Token"] = tokens[caller]
        data = {} if body is None else {"data": json.dumps(body)}
        response = world.call(None, method, path, headers=headers, **data)

        status, shown_headers, shown = read(example["answer"])
        assert response.status.lower() == status.lower(), request
        expect_shown(shown_headers, dict(response.headers), new)
        expect_shown(shown, response.json, new)
        world.engine.settle()


def test_the_reference_names_every_code_with_its_status():
    listed = set(re.findall(r"^\| (\d{3}) \| `(gsaas\.[a-z.-]+)` \|", REFERENCE, re.MULTILINE))
    ours = {(str(family.status), family.code) for family in families()}
    libraries = {(str(status), code) for status, code, _ in errors.LIBRARY_ERRORS.values()}
    assert listed == ours | libraries
