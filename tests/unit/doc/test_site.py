# SPDX-License-Identifier: Apache-2.0
"""The site that ./dev docs builds: without a warning, every link leads somewhere, and the references are complete."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from generate.programs import all_programs
from gsaas import conf
from gsaas.api import openapi, rbac, routes
from gsaas.api.errors import LIBRARY_ERRORS
from gsaasclient.cli.commands import COMMANDS
from tests.api.test_errors import families

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = openapi.document(routes.ROUTES)
OPERATIONS = [
    (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


class Page(HTMLParser):
    """A page of the site: its text, in one line, its links, and the ids to which links may lead."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self._parts: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))
        self.text = " ".join("".join(self._parts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {values[name] or "" for name in ("id", "name") if name in values}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"] or "")

    def handle_data(self, data: str) -> None:
        self._parts.append(data)


class Site(dict[str, Page]):
    """The pages of a site by name, and the paths of all its *files*."""

    def __init__(self, folder: Path) -> None:
        super().__init__((path.stem, Page(path)) for path in folder.glob("*.html"))
        self.files = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Build the site as ./dev docs does, but without the list of all pages beside each page, which takes long."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-b", "html"]
    command += ["-D", "html_theme_options.sidebar_mode=toc"]
    folders = ["-d", str(target / "doctrees"), "doc", str(target / "html")]
    done = subprocess.run(
        [*command, *folders], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Site(target / "html")


def test_the_head_and_the_foot_of_a_page_are_of_this_site_alone(site: Site):
    """Those of the theme lead to openstack.org, its search and its releases."""
    for name in ("index", "tenant-guide"):
        elsewhere = [link for link in site[name].links if "openstack.org" in link]
        assert elsewhere == []
        assert site[name].text.index("Use Operate Install") < site[name].text.index(
            "Apache License"
        )


def test_every_page_of_the_folder_is_a_page_of_the_site(site: Site) -> None:
    sources = {path.stem for path in (ROOT / "doc").iterdir() if path.suffix in (".md", ".rst")}
    assert sources <= site.keys()


def test_every_link_within_the_site_leads_to_something(site: Site) -> None:
    broken = []
    for name, page in site.items():
        for link in page.links:
            url = urlsplit(link)
            path, anchor = unquote(url.path), unquote(url.fragment)
            if url.scheme or url.netloc:
                continue
            target = site.get(path.removesuffix(".html")) if path else page
            if (path and path not in site.files) or (
                anchor and target and anchor not in target.ids
            ):
                broken.append((name, link))
    assert not broken


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_every_operation_is_in_the_reference_of_the_api(
    site: Site, method: str, path: str, operation: dict[str, object]
) -> None:
    page = site["api-reference"]
    assert f"{method} {path}¶" in page.text
    start = page.text.index(f"{method} {path}¶")
    section = page.text[start : page.text.find("¶", start + len(f"{method} {path}¶"))]
    for parameter in operation["parameters"]:  # type: ignore[attr-defined]
        assert parameter["name"] in section
    for status in operation["responses"]:  # type: ignore[attr-defined]
        assert status in section
    body = operation.get("requestBody")
    assert ("Body of the request" in section) == (body is not None)


def test_every_schema_and_error_is_in_the_reference_of_the_api(site: Site) -> None:
    text = site["api-reference"].text
    assert not {name for name in DOCUMENT["components"]["schemas"] if f"{name}¶" not in text}
    codes = {family.code for family in families()} | {
        code for _, code, _ in LIBRARY_ERRORS.values()
    }
    assert not {code for code in codes if code not in text}


def test_the_examples_of_the_guide_are_in_the_reference_of_the_api(site: Site) -> None:
    text = site["api-reference"].text
    assert "Example, answered 202 POST /v1/leases X-Auth-Token: $MEMBER" in text
    assert "Example, answered 409 POST /v1/leases" in text
    assert "gpu-scheduling 1.0" in text


def test_every_option_and_access_rule_is_on_its_page(site: Site) -> None:
    options = {
        option.dest
        for module in conf.MODULES
        for options in module.list_opts().values()
        for option in options
    }
    assert not {name for name in options if name not in site["configuration"].text}
    rules = {rule.name for rule in rbac.list_rules()}
    assert not {name for name in rules if name not in site["access-rules"].text}


def test_every_command_is_in_a_reference_of_commands(site: Site) -> None:
    text = site["commands"].text
    for command in COMMANDS.values():
        assert f"gsaas {command.name}¶" in text
        assert command.help.usage in text
        assert not {o.help for o in command.options if " ".join(o.help.split()) not in text}
    operators = site["operator-commands"].text
    for program in all_programs():
        if program.name != "gsaas":
            assert f"{program.name}¶" in operators


def test_every_release_note_is_on_the_site(site: Site) -> None:
    assert "GSaaS 1.0.0 is the first release" in site["release-notes"].text
    assert "Upgrade Notes" in site["release-notes"].text


def test_every_command_of_openstack_is_in_their_reference(site: Site) -> None:
    text = site["openstack-commands"].text
    commands = entry_points(group="openstack.gpu_scheduling.v1")
    assert len(commands) > 20
    for command in commands:
        assert f"{command.name.replace('_', ' ')}¶" in text
    assert "--compute-capability" in text
