# SPDX-License-Identifier: Apache-2.0
"""systemd starts the units of the DevStack plug-in as they are written, and the services run as an ordinary user."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.devstack.machine import REPOSITORY, Machine
from tests.openstack.bed.errors import BedError
from tests.support import cpu_host, folders, ggml
from tests.support.cpu_host import right
from tests.support.nvml import driver as nvml
from tests.support.rabbitmq import RabbitMQ
from tests.unit.devstack.node import COMPUTE_HOST, PROGRAMS, STACK, Node

pytestmark = pytest.mark.kernel

USER = "nobody"
FENCE = "nft list table inet gsaas_fence"
INVENTORY = """\
gpu_network = "127.0.0.1/32"

[[hosts]]
name = "node-1"
gpu_address = "127.0.0.1"
gpus = 1
model = "NVIDIA A2"
memory_mb = 15356
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """A folder that the machine sees, too, and that its users may enter."""
    folder = folders.make("devstack", folders.LARGE)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def machine(shared: Path) -> Iterator[Machine]:
    folder = folders.make("node", folders.LARGE)
    try:
        with Machine(folder, shared) as booted:
            yield booted
    except BedError as error:
        pytest.skip(str(error))
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def stack(shared: Path, machine: Machine, request: pytest.FixtureRequest):
    """Stacks a compute host with GPUs, all but the start of its services, and gives its units to the machine."""

    def stack(settings: str, bus: str = "fake://") -> Node:
        local = (
            f"{settings} STACK_USER={USER} BUS={bus}\n"
            f"function get_python_exec_prefix {{ echo {PROGRAMS}; }}"
        )
        node = Node(
            shared / request.node.name.translate(str.maketrans("[]", "__")), COMPUTE_HOST, local
        )
        node.run(*STACK)
        machine.type(f"cp -r {node.root}/systemd/. /etc/systemd/system; systemctl daemon-reload")
        machine.type(f"cp {node.root}/polkit/* /etc/polkit-1/rules.d")
        return node

    yield stack
    machine.type(
        "systemctl stop 'devstack@*'; nft flush ruleset; rm -rf /run/gsaas-monitor /etc/systemd/system/devstack@*"
    )


@pytest.mark.parametrize(
    "settings",
    [
        "GSAAS_REMOTING_DRIVER=simulated",
        "GSAAS_REMOTING_DRIVER=rcuda GSAAS_INVENTORY=$DEST/gpus.toml",
        "GSAAS_REMOTING_DRIVER=lupine GSAAS_INVENTORY=$DEST/gpus.toml",
    ],
    ids=["simulated", "rcuda", "lupine"],
)
def test_the_monitor_starts_fences_its_daemons_and_cleans_up(
    stack, machine: Machine, settings: str
):
    node = stack(settings)
    (node.root / "gpus.toml").write_text(INVENTORY)
    machine.type("systemctl start devstack@gsaas-monitor")
    assert machine.type("ps -o user= -C gsaas-monitor").stdout.split() == [USER]
    assert machine.type("stat -c %U /run/gsaas-monitor").stdout.split() == [USER]
    machine.type(FENCE)
    machine.type("systemctl stop devstack@gsaas-monitor")
    machine.type(FENCE)  # GPUs stay fenced in while a monitor is updated
    machine.type(f"{PROGRAMS}/gsaas-monitor --config-file {node.monitor_conf} --clean")
    assert machine.type("nft list tables").stdout == ""


def test_with_ggml_a_program_computes_on_the_processors_of_the_node(stack, machine: Machine):
    """The libraries are those of the tests, so the plug-in builds none."""
    if REPOSITORY.is_relative_to("/home") or REPOSITORY.is_relative_to("/root"):
        pytest.skip("no daemon sees a repository in /home or /root")
    with machine.network(), RabbitMQ() as broker:
        node = stack(
            f"GSAAS_REMOTING_DRIVER=ggml GSAAS_GGML_DIR={ggml.built()} GSAAS_BUS_SECRET=secret",
            broker.url,
        )
        with cpu_host.engine_of(machine, "node-1", broker.url, "secret") as host:
            machine.type("systemctl start devstack@gsaas-monitor")
            host.await_report()
            lease = host.lease(20000)
            host.have(*lease)
            assert right(host.results(host.run(lease, "--rounds=10")))
            host.have()
            machine.type("systemctl stop devstack@gsaas-monitor")
    machine.type(f"{PROGRAMS}/gsaas-monitor --config-file {node.monitor_conf} --clean")


def test_the_monitor_of_real_gpus_asks_their_driver(stack, machine: Machine, shared: Path):
    """Of two GPUs, the driver has lost one: the monitor says so, and nothing of the other."""
    driver = nvml.FakeDriver(shared / "driver")
    driver.have(2)
    driver.lose(1)
    machine.type(f"cp {nvml.build(shared)} /usr/local/lib; ldconfig")
    stack("GSAAS_REMOTING_DRIVER=lupine")
    unit = "/etc/systemd/system/devstack@gsaas-monitor.service.d"
    machine.type(
        f"printf '[Service]\nEnvironment=FAKE_NVML={driver.path}\n' >{unit}/driver.conf; "
        "systemctl daemon-reload; systemctl start devstack@gsaas-monitor"
    )
    said = machine.type("journalctl --no-pager -u devstack@gsaas-monitor").stdout
    assert "GPU number 1 of the driver's list is left out: it fails" in said
    assert "GPU number 0" not in said
    machine.type(FENCE)


def test_the_endpoint_starts_with_its_one_capability(stack, machine: Machine):
    node = stack("")
    machine.type("systemctl start devstack@gsaas-rodvr")
    assert machine.type("ps -o user= -C gsaas-rodvr").stdout.split() == [USER]
    machine.type("nft list table ip rodvr")
    machine.type("systemctl stop devstack@gsaas-rodvr")
    machine.type(f"{PROGRAMS}/gsaas-rodvr --config-file {node.rodvr_conf} --clean")
    assert machine.type("nft list tables").stdout == ""


def test_systemd_knows_when_a_service_does_not_start(stack, machine: Machine):
    """So the plug-in, which asks systemd, knows it, too."""
    node = stack("")
    node.monitor_conf.write_text("[DEFAULT]\nhost = no name of a host\n")
    assert machine.type("systemctl start devstack@gsaas-monitor", check=False).returncode
    said = machine.type("journalctl --no-pager -u devstack@gsaas-monitor").stdout
    assert "is not a host name" in said
