# SPDX-License-Identifier: Apache-2.0
"""systemd accepts the units, and each process gets the rights that it needs and no more."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

from gsaas import conf
from gsaas.gpu_host.daemons.unit import PREFIX

ETC = Path(__file__).parents[3] / "etc/gsaas"
INSTALLED = "/opt/gsaas/bin"
TIMED = [ETC / f"systemd/gsaas-{name}.service" for name in ("purge", "verify")]
"""The units of commands that timers run."""
UNITS = sorted(set((ETC / "systemd").glob("*.service")) - set(TIMED))
"""The units of processes that run all the time."""
NAMES = [unit.stem for unit in UNITS]


def read(unit: Path) -> configparser.SectionProxy:
    """Return the section [Service] of a unit."""
    parser = configparser.RawConfigParser(strict=False)  # some options may be repeated
    parser.optionxform = str
    parser.read(unit)
    return parser["Service"]


def test_each_process_of_a_deployment_has_a_unit():
    assert NAMES == ["gsaas-api", "gsaas-engine", "gsaas-monitor", "gsaas-rodvr"]


@pytest.mark.parametrize(
    "unit",
    [*UNITS, *TIMED, *(unit.with_suffix(".timer") for unit in TIMED)],
    ids=lambda unit: unit.name,
)
def test_systemd_accepts_each_unit(unit: Path, tmp_path: Path):
    """systemd checks that the programs exist: a copy of the unit names links in a temporary folder."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("uwsgi", "gsaas-manage", *NAMES):
        (programs / name).symlink_to(sys.executable)
    for each in (ETC / "systemd").iterdir():  # a timer is verified with its service
        (tmp_path / each.name).write_text(each.read_text().replace(INSTALLED, str(programs)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / unit.name],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


CAPABILITIES = {
    "gsaas-rodvr": "CAP_NET_ADMIN",
    "gsaas-monitor": "CAP_NET_ADMIN",
}


def test_nothing_of_the_monitor_outlives_it():
    """Its daemons do, as units of their own."""
    service = read(ETC / "systemd/gsaas-monitor.service")
    assert not {"Delegate", "KillMode", "RuntimeDirectoryPreserve"} & set(service)
    assert service["RuntimeDirectory"] == "gsaas-monitor"


def test_polkits_rule_is_about_the_units_and_the_user_of_the_monitor():
    rule = (ETC / "polkit/gsaas-monitor.rules").read_text()
    users = {unit.stem: read(unit)["User"] for unit in [*UNITS, *TIMED]}
    monitor = users.pop("gsaas-monitor")
    assert set(users.values()) == {"gsaas"}, "no other process has the monitor's user"
    assert monitor == "gsaas-monitor"
    assert f'subject.user != "{monitor}"' in rule
    assert f'unit.indexOf("{PREFIX}") == 0' in rule


def test_no_other_process_may_read_the_monitors_key():
    """It is the key that commands for the monitor are signed with, too."""
    file = "/etc/gsaas/gsaas-monitor.conf"
    for unit in [*UNITS, *TIMED]:
        kept_out = file in read(unit).get("InaccessiblePaths", "").replace("-/", "/").split()
        assert kept_out == (unit.stem != "gsaas-monitor"), unit.stem


@pytest.mark.parametrize("unit", [*UNITS, *TIMED], ids=lambda unit: unit.stem)
def test_only_agents_have_capabilities_and_only_those_they_need(unit: Path):
    service = read(unit)
    expected = CAPABILITIES.get(unit.stem, "")
    assert service["CapabilityBoundingSet"] == expected
    assert service.get("AmbientCapabilities", "") == expected
    assert service["NoNewPrivileges"] == "yes"


@pytest.mark.parametrize("name", ["gsaas-api", "gsaas-engine", "gsaas-rodvr", "gsaas-verify"])
def test_processes_that_use_openstack_or_the_kernel_may_use_netlink(name: str):
    """openstacksdk lists this machine's interfaces when it connects, and fails where it may not."""
    unit = read(ETC / "systemd" / f"{name}.service")
    assert "AF_NETLINK" in unit["RestrictAddressFamilies"].split()


@pytest.mark.parametrize("unit", UNITS, ids=NAMES)
def test_a_process_that_could_not_start_is_started_again(unit: Path):
    service = read(unit)
    assert (service["Type"], service["Restart"]) == ("notify", "always")
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_a_monitor_may_use_nvidias_devices_and_no_others():
    lines = (ETC / "systemd/gsaas-monitor.service").read_text().splitlines()
    allowed = {line.partition("=")[2] for line in lines if line.startswith("DeviceAllow=")}
    assert "DevicePolicy=closed" in lines
    assert allowed
    assert all(device.startswith("char-nvidia") for device in allowed)


@pytest.mark.parametrize("unit", UNITS, ids=NAMES)
def test_a_stopped_process_leaves_no_folder_in_run(unit: Path):
    """systemd removes the last folder of a path, not its parents."""
    assert "/" not in read(unit).get("RuntimeDirectory", "")


def test_clients_that_wait_leave_threads_of_uwsgi_for_others(sample: Path):
    parser = configparser.RawConfigParser(strict=False)
    parser.read(ETC / "gsaas-api-uwsgi.ini")
    assert parser.getint("uwsgi", "threads") > conf.load(files=[str(sample)]).queue.long_polls
