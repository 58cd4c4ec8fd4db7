# SPDX-License-Identifier: Apache-2.0
"""Which middleware serves which kind of device, and which configurations are refused at the start."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest
import stevedore
from oslo_config import cfg

import gsaas.conf
from gsaas.api import cgpus
from gsaas.exceptions import KindNotServed
from gsaas.objects.address import Address
from gsaas.objects.request import Request
from gsaas.remoting import base
from gsaas.remoting.base import ClientDevice
from gsaas.remoting.drivers import Drivers

DEVICE = [ClientDevice(Address("169.254.71.1", 9090), 256)]


THREE_PORTS = """
from gsaas.remoting.base import RemotingDriver
from gsaas.remoting.daemon import PER_LEASE, DaemonTemplate

class ThreePorts(RemotingDriver):
    name = "three-ports"
    default_port = 10998
    daemon_template = DaemonTemplate(command="./d -p {port}", life=PER_LEASE, ports=3)

    def variables(self, lease_id, devices):
        return {"ADDRESS": str(devices[0].address)}
"""
ENTRY_POINTS = """
[gsaas.remoting]
three-ports = gsaas_three_ports:ThreePorts
lost = gsaas_three_ports.lost:Lost
"""


@pytest.fixture
def with_three_ports(monkeypatch, tmp_path):
    """Install a driver whose daemons need three ports, and one that cannot be imported."""
    (tmp_path / "gsaas_three_ports.py").write_text(THREE_PORTS)
    (tmp_path / "three.dist-info").mkdir()
    (tmp_path / "three.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: three\n")
    (tmp_path / "three.dist-info/entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(stevedore.ExtensionManager, "ENTRY_POINT_CACHE", {})
    yield
    sys.modules.pop("gsaas_three_ports", None)


def configured(life: str | None = None, **options: str) -> cfg.ConfigOpts:
    conf = gsaas.conf.load(files=[])
    conf.set_override("life", life, "daemons")
    for name, value in options.items():
        conf.set_override(name, value, "remoting")
    return conf


def test_each_kind_has_its_own_driver():
    drivers = Drivers(configured(driver="rcuda", cpu_driver="ggml"))
    assert {kind: drivers.of(kind).name for kind in ("cuda", "cpu")} == {
        "cuda": "rcuda",
        "cpu": "ggml",
    }
    assert sorted(driver.name for driver in drivers) == ["ggml", "rcuda"]
    assert drivers.masked_ports == {"rcuda": 8308, "ggml": 50052}
    assert list(drivers.daemon_ports) == ["ggml"], "a daemon of rCUDA serves a GPU"
    assert list(Drivers(configured("per-gpu", cpu_driver="ggml")).daemon_ports) == []


@pytest.mark.parametrize("name", ["ggml", "tvm", "simulated"])
def test_one_driver_serves_both_kinds_if_it_can(name):
    drivers = Drivers(configured(driver=name))
    assert drivers.of("cpu") is drivers.of("cuda")
    assert [driver.name for driver in drivers] == [name]


@pytest.mark.parametrize("name", ["rcuda", "lupine"])
def test_without_a_driver_for_cpu_devices_they_are_not_served(name):
    drivers = Drivers(configured(driver=name))
    assert drivers.of("cuda").name == name
    with pytest.raises(KindNotServed, match="serves no devices of kind cpu"):
        drivers.of("cpu")


def test_a_lease_keeps_a_driver_that_is_no_longer_that_of_new_leases():
    drivers = Drivers(configured(driver="rcuda"))
    assert drivers.named("lupine").name == "lupine"
    assert drivers.named("native").name == "native"
    with pytest.raises(ValueError, match="no remoting driver 'xcuda'"):
        drivers.named("xcuda")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cpu_driver": "lupine"}, "cpu_driver is lupine, which serves no devices of kind cpu"),
        ({"cpu_driver": "native"}, "cpu_driver is native, which serves no devices of kind cpu"),
        ({"cpu_driver": "xcuda"}, "no remoting driver 'xcuda'"),
        ({"driver": "rcuda", "default_kind": "cpu"}, "default_kind is cpu, and no driver serves"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_at_the_start(options, reason):
    with pytest.raises(ValueError, match=reason):
        Drivers(configured(**options))


def test_ports_of_leases_that_contain_the_first_port_of_either_driver_are_refused():
    for ports in ("8000-9000", "50000-51000"):
        conf = configured(driver="rcuda", cpu_driver="ggml")
        conf.set_override("lease_ports", ports, "daemons")
        with pytest.raises(ValueError, match=f"lease_ports {ports} contain"):
            Drivers(conf)


def test_each_driver_has_its_own_folder_of_client_libraries():
    folders = {"library_path": "/cuda", "cpu_library_path": "/cpu"}
    drivers = Drivers(configured(driver="rcuda", cpu_driver="ggml", **folders))
    found = {
        kind: drivers.of(kind).environment("lease", DEVICE)["LD_LIBRARY_PATH"]
        for kind in ("cuda", "cpu")
    }
    assert found == {"cuda": "/cuda", "cpu": "/cpu"}
    usual = Drivers(configured(driver="rcuda", cpu_driver="ggml", library_path="/cuda")).of("cpu")
    assert usual.environment("lease", DEVICE)["LD_LIBRARY_PATH"] == "/opt/llama.cpp/lib"


@pytest.mark.usefixtures("with_three_ports")
def test_a_daemon_gets_as_many_ports_as_one_of_any_installed_driver_needs():
    """A host may have leases of another driver, which was configured before."""
    drivers = Drivers(configured("per-lease", driver="rcuda", cpu_driver="ggml"))
    assert {name: ports.each for name, ports in drivers.daemon_ports.items()} == {
        "rcuda": 3,
        "ggml": 3,
    }
    driver = base.load("three-ports", configured())
    assert driver.adapt(Request(1)) == Request(1, ports_per_daemon=3)
    assert Drivers(configured(driver="rcuda")).of("cuda").adapt(Request(1)) == Request(1)


def test_without_such_a_driver_each_daemon_gets_one_port():
    drivers = Drivers(configured(driver="lupine"))
    assert {name: ports.each for name, ports in drivers.daemon_ports.items()} == {"lupine": 1}


def test_the_drivers_of_gsaas_itself_have_daemons_with_one_port():
    """Their modules are not imported to find out."""
    own = [point.load() for point in metadata.entry_points(group=base.NAMESPACE)]
    assert {driver.daemon_template.ports for driver in own if driver.daemon_template} == {1}


@pytest.mark.usefixtures("with_three_ports")
def test_the_daemons_of_gpus_have_their_ports_one_after_the_other():
    driver = base.load("three-ports", configured())
    assert list(driver.gpu_ports[:3]) == [10998, 11001, 11004]
    assert list(Drivers(configured(driver="rcuda")).of("cuda").gpu_ports[:2]) == [8308, 8309]


@pytest.mark.usefixtures("with_three_ports")
def test_ports_of_leases_that_contain_a_later_port_of_the_first_gpu_are_refused():
    conf = configured()
    conf.set_override("lease_ports", "11000-11999", "daemons")
    with pytest.raises(ValueError, match="lease_ports 11000-11999 contain"):
        base.load("three-ports", conf)


def test_what_a_driver_decides_is_kept_with_the_lease_and_no_caller_sees_it():
    request = Request(1, ports_per_daemon=3)
    stored = request.stored_requirements()
    assert Request.from_dict(request.to_dict() | stored) == request
    assert "ports_per_daemon" not in request.to_dict()
    assert cgpus.asked_for(stored) == {}
