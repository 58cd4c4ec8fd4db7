# SPDX-License-Identifier: Apache-2.0
"""Horizon's own dialog *Launch Instance*, in a real Chromium, makes servers with cGPUs, as doc/plain-servers.md says.

The dashboard of GSaaS has no part in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openstack.connection import Connection
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from gsaasclient import sdk
from tests.openstack import users
from tests.openstack.bed import glance, settings, venv
from tests.openstack.bed.commands import run
from tests.openstack.bed.settings import VENV
from tests.openstack.browser import Browser
from tests.openstack.servers import Servers
from tests.openstack.users import lease_of

pytestmark = users.pytestmark

REPOSITORY = Path(__file__).parents[2]
DOCUMENT = REPOSITORY / "doc/plain-servers.md"
DEFINITIONS = REPOSITORY / "etc/gsaas/metadefs/gsaas.json"
SHARES = {"gsaas:ncgpus": "2", "gsaas:poolmem": "2048", "gsaas:mode": "shared"}
Eventually = Callable[[Callable[[], Any]], Any]


class Dialog:
    """The dialog, open, with the name of the server typed."""

    def __init__(self, browser: Browser, name: str) -> None:
        self._browser = browser
        browser.go("/project/instances/")
        browser.click("Launch Instance")
        browser.find(".ng-wizard")
        browser.fill("name", name)

    def select(self, page: str, name: str) -> None:
        """Move the row with this name on a page from *Available* to *Allocated*."""
        shown = self._turn_to(page)

        def selected() -> bool:
            if self._rows(shown, "allocated", name):
                return True
            for row in self._rows(shown, "available", name):
                # What cannot be selected has a sign. Until the quota is known, no flavor can.
                signs = row.find_elements(By.CSS_SELECTOR, ".invalid")
                if not any(sign.is_displayed() for sign in signs):
                    self._click(row.find_element(By.CSS_SELECTOR, "button"))
            return False

        self._browser.until(selected)

    def add_custom_metadata(self, name: str, value: str) -> None:
        """Add a property of one's own on the page *Metadata*."""
        page = self._turn_to("Metadata")
        self._browser.find("[name='customItem']", page).send_keys(name)
        add = self._browser.find(".input-group-btn button", page)
        self._browser.until(add.is_enabled)
        self._click(add)
        self._set(page, name, value)

    def add_defined_metadata(self, group: str, title: str, name: str, value: str) -> None:
        """Add the property with this *title*, which the operator has defined in a *group*."""
        page = self._turn_to("Metadata")
        if not self._titled(page, title):
            self._click(self._browser.until(lambda: self._titled(page, group)))
        item = self._browser.until(lambda: self._titled(page, title))
        self._click(item.find_element(By.CSS_SELECTOR, "a.btn"))
        self._set(page, name, value)

    def launch(self) -> None:
        finish = self._browser.find(".ng-wizard .finish")
        self._browser.until(finish.is_enabled)
        self._click(finish)
        self._browser.until(lambda: not self._browser.all(".ng-wizard"))

    def _turn_to(self, title: str) -> WebElement:
        """Turn to a page of the dialog, and return it."""

        def shown() -> WebElement | None:
            titles = self._browser.all(".wizard-nav li")
            pages = self._browser.all(".wizard-steps .step")
            for place, each in enumerate(titles):
                if each.text.replace("*", "").strip() == title:
                    self._click(each)
                    return pages[place] if pages[place].is_displayed() else None
            return None

        return self._browser.until(shown)

    def _rows(self, page: WebElement, part: str, name: str) -> list[WebElement]:
        rows = page.find_elements(By.CSS_SELECTOR, f".transfer-{part} tbody tr")
        return [row for row in rows if name in row.text.split()]

    def _titled(self, page: WebElement, title: str) -> WebElement | None:
        """Return the group or property of this title that can be added on the page *Metadata*."""
        items = page.find_elements(By.CSS_SELECTOR, ".metadata-list-group > li")
        return next((each for each in items if each.text.strip() == title), None)

    def _set(self, page: WebElement, name: str, value: str) -> None:
        field = self._browser.find(
            f".metadata-tree-item:has([title='{name}']) [name='property']", page
        )
        if field.tag_name == "select":
            Select(field).select_by_visible_text(value)
        else:
            field.clear()
            field.send_keys(value)

    def _click(self, element: WebElement) -> None:
        self._browser.driver.execute_script("arguments[0].click()", element)


@pytest.fixture
def gpus(tenant: Connection) -> Any:
    """GSaaS as the tenant."""
    sdk.add_service(tenant)
    return tenant.gpu_scheduling


@pytest.fixture
def definitions(cloud: None) -> dict[str, Any]:
    """The metadata definitions that ship, loaded as doc/plain-servers.md says."""
    (command,) = re.findall(r"^    glance-manage (.*)$", DOCUMENT.read_text(), re.MULTILINE)
    glance_manage(*command.replace("/opt/gsaas/share/gsaas", str(REPOSITORY)).split())
    shipped: dict[str, Any] = json.loads(DEFINITIONS.read_text())
    return shipped


@pytest.fixture
def only_definitions_of_glance(cloud: None) -> None:
    """Those that Glance comes with, and none of GSaaS."""
    glance_manage("db_unload_metadefs")
    glance_manage("db_load_metadefs", str(VENV / "etc/glance/metadefs"))


def glance_manage(*words: str) -> None:
    run(venv.program("glance-manage"), "--config-file", glance.CONFIGURATION, *words)


@pytest.fixture
def launch(
    as_tenant: Browser,
    servers: Servers,
    taps: None,
    tenant: Connection,
    eventually: Eventually,
) -> Callable[..., Any]:
    """Launches a server with the dialog; returns it."""

    def launch(name: str, flavor: str, add_metadata: Callable[[Dialog], None]) -> Any:
        dialog = Dialog(as_tenant, name)
        dialog.select("Source", settings.IMAGE)
        dialog.select("Flavor", flavor)
        dialog.select("Networks", settings.NETWORK)
        add_metadata(dialog)
        dialog.launch()
        server = eventually(lambda: tenant.compute.find_server(name))
        servers.remember(server.id)
        as_tenant.see(name)
        return server

    return launch


def check_has_cgpus(gpus: Any, server: Any, eventually: Eventually) -> None:
    """Check that GSaaS gives *server* what `SHARES` say."""
    lease = eventually(lambda: lease_of(gpus, server))
    assert (lease.name, lease.cgpus["count"], lease.cgpus["memory_mb"]) == (server.name, 2, 2048)
    assert gpus.wait_for_lease(lease).status == "ACTIVE"


def test_a_server_has_the_cgpus_of_the_flavor_that_is_selected(
    launch: Callable[..., Any],
    gpu_flavor: Callable[..., str],
    gpus: Any,
    eventually: Eventually,
):
    flavor = gpu_flavor(settings.FAKE_FLAVOR, SHARES)
    server = launch("selected", flavor, lambda _: None)
    check_has_cgpus(gpus, server, eventually)


def test_a_server_has_the_cgpus_that_are_typed_as_custom_metadata(
    only_definitions_of_glance: None,
    launch: Callable[..., Any],
    gpus: Any,
    eventually: Eventually,
):
    def add(dialog: Dialog) -> None:
        for name, value in SHARES.items():
            dialog.add_custom_metadata(name, value)

    server = launch("typed", settings.FAKE_FLAVOR, add)
    check_has_cgpus(gpus, server, eventually)


def test_a_server_has_the_cgpus_that_are_added_from_the_operators_definitions(
    definitions: dict[str, Any], launch: Callable[..., Any], gpus: Any, eventually: Eventually
):
    def add(dialog: Dialog) -> None:
        for name, value in SHARES.items():
            title = definitions["properties"][name.removeprefix("gsaas:")]["title"]
            dialog.add_defined_metadata(definitions["display_name"], title, name, value)

    server = launch("added", settings.FAKE_FLAVOR, add)
    check_has_cgpus(gpus, server, eventually)
