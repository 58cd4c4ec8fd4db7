"""systemd accepts the units, and each process gets what it needs and no more."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ETC = Path(__file__).parents[3] / "etc/gsaas"
INSTALLED = "/opt/gsaas/bin"
UNITS = sorted((ETC / "systemd").glob("*.service"))
NAMES = [unit.stem for unit in UNITS]


def read(unit: Path) -> configparser.SectionProxy:
    """The part of a unit that says how its process runs."""
    parser = configparser.RawConfigParser()
    parser.optionxform = str
    parser.read(unit)
    return parser["Service"]


def test_each_process_of_a_deployment_has_a_unit():
    assert NAMES == ["gsaas-api", "gsaas-engine", "gsaas-monitor", "gsaas-rodvr"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=NAMES)
def test_systemd_has_nothing_to_say_against_a_unit(unit: Path, tmp_path: Path):
    """The programs are looked for where the units have them; here they are put there by name."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("uwsgi", *NAMES):
        (programs / name).symlink_to(sys.executable)
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(INSTALLED, str(programs)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=NAMES)
def test_only_the_endpoint_has_a_capability_and_only_one(unit: Path):
    service = read(unit)
    expected = "CAP_NET_ADMIN" if unit.stem == "gsaas-rodvr" else ""
    assert service["CapabilityBoundingSet"] == expected
    assert service.get("AmbientCapabilities", "") == expected
    assert (service["User"], service["NoNewPrivileges"]) == ("gsaas", "yes")


@pytest.mark.parametrize("unit", UNITS, ids=NAMES)
def test_a_process_that_could_not_start_is_tried_again(unit: Path):
    service = read(unit)
    assert (service["Type"], service["Restart"]) == ("notify", "always")
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
