# SPDX-License-Identifier: Apache-2.0
"""What an operator copies from the documents into `local.conf` works as it is written."""

from __future__ import annotations

import re

import pytest

from tests.unit.devstack.node import SOURCE

pytestmark = pytest.mark.slow

DOCUMENTS = sorted(
    path.relative_to(SOURCE)
    for path in (*SOURCE.glob("*.md"), *SOURCE.glob("doc/*.md"), *SOURCE.glob("devstack/*.md"))
    if "enable_plugin" in path.read_text()
)


def test_documents_say_how_to_enable_the_plugin() -> None:
    assert {"devstack/README.md", "doc/operator-guide.md"} <= {str(path) for path in DOCUMENTS}


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_the_line_that_enables_the_plugin_names_the_branch(document: str) -> None:
    """DevStack's default is `master`, and the branch of this repository is `main`."""
    lines = re.findall(r"^ +enable_plugin (.*)$", (SOURCE / document).read_text(), re.MULTILINE)
    assert lines
    for line in lines:
        name, _repository, branch = line.partition("#")[0].split()
        assert (name, branch) == ("gsaas", "main")
