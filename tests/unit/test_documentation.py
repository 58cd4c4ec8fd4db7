# SPDX-License-Identifier: Apache-2.0
"""Every file of the source tree and every module that the documentation names exists."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import operator
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(REPOSITORY)
    for pattern in (
        "*.md",
        "doc/*.md",
        "doc/decisions/*.md",
        "devstack/*.md",
        "etc/**/*.md",
        "studies/**/*.md",
    )
    for path in REPOSITORY.glob(pattern)
    # A decision that was superseded may be about code that is gone.
    if "\n- Status: superseded" not in path.read_text(encoding="utf-8")
)
SOURCES = sorted(
    path.relative_to(REPOSITORY)
    for root in ("gsaas", "studies", "bench")
    for path in (REPOSITORY / root).rglob("*.py")
)

PATH = re.compile(
    r"(?<![\w/.$-])(?:gsaas|tests|bench|studies|launcher|devstack|etc|doc|\.ci)/[\w./*-]*[\w*/]"
)
"""A file or folder of the source tree, from its root; `*` stands for any name."""
SHORT = re.compile(r"`([\w.-]+/[\w./-]+\.(?:py|c|h|sh))`")
"""A source file in backticks."""
DOTTED = re.compile(r"(?<![\w/.@-])gsaas(?:\.\w[\w-]*)+")

NOT_MODULES = re.compile(
    r"gsaas\.(sock|sql|log|conf\.sample|venv|json|target|toml|service|example)\b.*"
)
"""Names of files and hosts that begin like a module."""


def text_of(document: Path) -> str:
    return (REPOSITORY / document).read_text()


@functools.cache
def error_codes() -> set[str]:
    """Return every text of the code that looks like a module: also the codes of errors, e.g. `gsaas.capacity.busy`."""
    return {
        text
        for source in SOURCES
        for text in re.findall(r"\"(gsaas(?:\.[\w-]+)+)\"", text_of(source))
    }


def exists(name: str) -> bool:
    """Whether *name* is a module, a package or something in one, e.g. `gsaas.db.models.Base`."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module, attributes = ".".join(parts[:end]), parts[end:]
        try:
            if importlib.util.find_spec(module) is None:
                continue
        except ModuleNotFoundError:
            continue
        if not attributes:
            return True  # without importing it: some modules start something
        try:
            operator.attrgetter(".".join(attributes))(importlib.import_module(module))
        except AttributeError:
            return False
        return True
    return False


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_file_that_a_document_names_exists(document: Path) -> None:
    text = text_of(document)
    named = {*PATH.findall(text), *SHORT.findall(text)}
    assert not {name for name in named if not list(REPOSITORY.glob(name.rstrip("/")))}


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_every_module_that_a_document_names_exists(document: Path) -> None:
    named = set(DOTTED.findall(text_of(document))) - error_codes()
    assert not {name for name in named if not NOT_MODULES.fullmatch(name) and not exists(name)}


def test_every_module_that_a_docstring_or_comment_names_in_backticks_exists() -> None:
    missing = {
        (str(source), name)
        for source in SOURCES
        for name in re.findall(r"`(gsaas(?:\.\w+)+)", text_of(source))
        if name not in error_codes() and not NOT_MODULES.fullmatch(name) and not exists(name)
    }
    assert not missing
