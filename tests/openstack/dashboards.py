# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a real Horizon over the test bed, and a Chromium in front of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.openstack import horizon as horizons
from tests.openstack.bed import settings
from tests.openstack.browser import Browser
from tests.openstack.horizon import Horizon


@pytest.fixture(scope="session")
def horizon(cloud: None) -> Iterator[Horizon]:
    """One for all tests: to collect and compress its static files takes a minute of a busy machine."""
    horizons.install()
    with tempfile.TemporaryDirectory(prefix="gsaas-horizon-") as folder:
        Path(folder).chmod(0o755)  # it runs as another user; the folders of pytest are root's alone
        horizon = Horizon(Path(folder))
        try:
            horizon.configure()
            horizon.start()
            yield horizon
        finally:
            horizon.stop()


@pytest.fixture(scope="session")
def window(horizon: Horizon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    window = Browser(horizon.url, tmp_path_factory.mktemp("chromium"))
    yield window
    window.close()


@pytest.fixture
def browser(window: Browser, horizon: Horizon) -> Iterator[Browser]:
    """Chromium; sees at the end that Horizon had no internal error meanwhile."""
    before = horizon.log.read_text().count("Internal Server Error")
    yield window
    assert horizon.log.read_text().count("Internal Server Error") == before


@pytest.fixture
def as_tenant(browser: Browser) -> Browser:
    browser.login(settings.TENANTS[0], settings.password(settings.TENANTS[0]))
    return browser
