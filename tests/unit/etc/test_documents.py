# SPDX-License-Identifier: Apache-2.0
"""README.md, CONTRIBUTING.md and doc/ name only options, commands, files and headings that exist."""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from generate import schemas
from gsaas import conf
from gsaasclient.cli.commands import COMMANDS
from gsaasclient.cli.parser import HelpRequested, parse

ROOT = Path(__file__).parents[3]
PAGES = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for page in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "doc").glob("*.md")))
}
GENERATED = {ROOT / path for path in schemas.files()}
"""What pages link to and `./dev docs` writes."""
OF_A_USER = {"username", "password", "project_name", "user_domain_name", "project_domain_name"}
"""Options of [keystone_authtoken] that it does not declare, as with every section of keystoneauth."""
OF_OSLO = {
    "keystone_authtoken": {"auth_url", *OF_A_USER},
    "oslo_limit": {"auth_url", "auth_type", *OF_A_USER, "system_scope"},
}
NOVA = "# nova.conf"
"""Beginnings of configurations of other programs."""
INI = re.compile(r"^```ini\n(.*?)^```", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"\[(\w+)\](?:`? option `)?([a-z]\w+)")
COMMAND = re.compile(r"(?:^ {4}(?:\$ )?|`)(gsaas (?:-|[a-z]).*?)(?:`|$)", re.MULTILINE)
"""A command line of tenants: in a block, with or without a prompt, or in the text."""
SHELL = re.compile(r"\s(?:&&|\|\|?|>|&|#|;).*|;.*|\s{2,}.*")
"""The parts of such a line that do not belong to the command."""
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


CONFIGURING = sorted(set(PAGES) - {"doc/heat.md", "doc/tempest.md"})
"""The pages whose options are of GSaaS; those describe options of Heat and Tempest."""


@pytest.fixture(scope="module")
def known(sample: Path) -> set[tuple[str, str]]:
    """Every option of GSaaS and of the libraries that it uses, as (section, name)."""
    found, section = {(s, name) for s, names in OF_OSLO.items() for name in names}, ""
    for line in sample.read_text().splitlines():
        if match := re.fullmatch(r"\[(.+)\]", line):
            section = match[1]
        elif match := re.match(r"#(\w+) =", line):
            found.add((section, match[1]))
    return found


def configurations(text: str) -> Iterator[str]:
    return (block for block in INI.findall(text) if not block.startswith(NOVA))


@pytest.mark.parametrize("page", CONFIGURING)
def test_every_option_that_a_page_names_exists(page: str, known: set[tuple[str, str]]):
    named = set(OPTION.findall(PAGES[page]))
    for block in configurations(PAGES[page]):
        parser = configparser.RawConfigParser(strict=False, default_section="none")
        parser.read_string(block)
        named |= {(section, name) for section in parser.sections() for name in parser[section]}
    assert named <= known


@pytest.mark.parametrize("page", CONFIGURING)
def test_every_configuration_that_a_page_shows_can_be_read(page: str, tmp_path: Path):
    for block in configurations(PAGES[page]):
        (tmp_path / "gsaas.conf").write_text(block)
        conf.load([], files=[str(tmp_path / "gsaas.conf")])


@pytest.mark.parametrize("page", PAGES)
def test_every_command_line_that_a_page_shows_can_be_parsed(page: str):
    for line in COMMAND.findall(PAGES[page]):
        ours = line.replace("...", "").partition(" -- ")[0]
        words = shlex.split(SHELL.sub("", ours))
        try:
            parse([re.sub(r"\bN\b", "1", word) for word in words[1:]], COMMANDS)
        except HelpRequested:
            continue


def slug(heading: str) -> str:
    """Return the anchor that a forge derives from a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return words.replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_every_link_has_a_target(page: str):
    for link in LINK.findall(PAGES[page]):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert target.exists() or target in GENERATED, link
        if anchor:
            text = FENCED.sub("", target.read_text(encoding="utf-8"))
            headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            assert anchor in map(slug, headings), link
