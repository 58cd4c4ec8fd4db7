# SPDX-License-Identifier: Apache-2.0
"""Whoever has the cloud brought up takes it down; nobody else does, unless they are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.openstack.bed import loan


@pytest.fixture(autouse=True)
def note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loan, "NOTE", tmp_path / "lent")


def test_a_cloud_that_nobody_borrowed_is_nobodys():
    assert not loan.is_of(os.getpid())


def test_a_borrowed_cloud_is_its_borrowers_until_somebody_keeps_it():
    loan.lend(os.getpid())
    assert loan.is_of(os.getpid())
    assert not loan.is_of(1)
    loan.keep()
    assert not loan.is_of(os.getpid())


def test_what_a_process_that_is_gone_had_borrowed_is_the_next_ones():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as borrower:
        loan.lend(borrower.pid)
        assert not loan.is_of(os.getpid())
        borrower.kill()
    assert loan.is_of(os.getpid())
