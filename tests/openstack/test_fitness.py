# SPDX-License-Identifier: Apache-2.0
"""A machine that cannot carry the cloud is told why in a few words."""

from __future__ import annotations

import os
import platform

import pytest

from tests.openstack.bed import commands, fitness


@pytest.fixture(autouse=True)
def fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that can."""
    debian = {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian GNU/Linux 12"}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: debian)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(commands, "succeeds", lambda *_: True)
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2 * 2**20}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)


def test_a_machine_that_will_do_lacks_nothing():
    assert fitness.lacks() is None


def test_another_system_is_named(monkeypatch: pytest.MonkeyPatch):
    other = {"ID": "ubuntu", "VERSION_ID": "24.04", "PRETTY_NAME": "Ubuntu 24.04 LTS"}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: other)
    assert fitness.lacks() == "Debian 12, and this is Ubuntu 24.04 LTS"


def test_what_a_container_may_not_do_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(commands, "succeeds", lambda *_: False)
    assert "may not make them here" in fitness.lacks()


def test_a_machine_without_control_groups_of_version_2_is_told_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(commands, "succeeds", lambda program, *_: program != "grep")
    assert "control groups of version 2" in fitness.lacks()


def test_too_little_memory_is_said_with_numbers(monkeypatch: pytest.MonkeyPatch):
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**20}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    assert fitness.lacks() == "7000 MiB of memory, and there are 4096"
