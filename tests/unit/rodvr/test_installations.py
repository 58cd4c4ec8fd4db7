# SPDX-License-Identifier: Apache-2.0
"""What is announced: bindings that become installed, each once, unless a report names them."""

from __future__ import annotations

from gsaas.rodvr.installations import Installations


def test_a_binding_is_announced_once_and_keeps_its_time() -> None:
    installations = Installations()
    installations.start_timing()
    installations.record("port-1", True)
    seconds = installations.seconds("port-1")
    installations.start_timing()
    installations.record("port-1", True)
    assert seconds is not None
    assert installations.seconds("port-1") == seconds
    assert installations.take_unannounced() == ["port-1"]
    assert installations.take_unannounced() == []


def test_a_binding_that_was_not_installed_meanwhile_is_announced_again() -> None:
    installations = Installations()
    for installed in (True, False, True):
        installations.record("port-1", installed)
    assert installations.take_unannounced() == ["port-1", "port-1"]


def test_what_a_report_names_or_what_is_removed_is_not_announced() -> None:
    installations = Installations()
    for port_id in ("port-1", "port-2", "port-3"):
        installations.record(port_id, True)
    installations.mark_announced(["port-1"])
    installations.remove("port-2")
    assert installations.take_unannounced() == ["port-3"]
    assert "port-2" not in installations
