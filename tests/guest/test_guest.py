# SPDX-License-Identifier: Apache-2.0
"""The image of VMs that doc/quickstart-real-gpus.md describes: built by its commands, and booted as a VM would be."""

from __future__ import annotations

import base64
import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import gsaas.conf
from gsaas.objects.address import Address
from gsaas.prove import place
from gsaas.remoting import base, user_data
from gsaas.remoting.base import ClientDevice
from tests.openstack.bed.errors import BedError
from tests.support import guest, lupine
from tests.support.cuda.driver import FIRST
from tests.support.guest import Guest

pytestmark = pytest.mark.timeout(3000)  # the first one builds

MASKED = "169.254.71.1"
LEASE = "5b0ab1a6-6a0c-4a53-9a07-0d6f1f0b6a0e"
READERS = {
    "a login shell": "env",
    "the default environment of services": "systemctl show-environment",
    "what PAM reads": "cat /etc/environment",
}


@pytest.fixture(scope="module")
def image() -> Path:
    try:
        return guest.built()
    except guest.NotBuildable as reason:
        pytest.skip(str(reason))


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


@pytest.fixture(scope="module")
def network() -> Iterator[tuple[str, str]]:
    """The namespaces of a VM and of a GPU host that answers at a masked address, with a wire between them."""
    vm, host = (f"image-{name}-{os.getpid()}" for name in ("vm", "gpu"))
    ip(f"netns add {vm}")
    ip(f"netns add {host}")
    try:
        ip(f"link add eth0 netns {vm} type veth peer name wire netns {host}")
        for name, link, address in (
            (vm, "eth0", "192.0.2.5/24"),
            (host, "wire", "192.0.2.1/24"),
            (host, "wire", f"{MASKED}/32"),
        ):
            ip(f"-n {name} address add {address} dev {link}")
            ip(f"-n {name} link set {link} up")
        yield vm, host
    finally:
        ip(f"netns del {vm}")
        ip(f"netns del {host}")


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    conf = gsaas.conf.load(files=[])
    return dict(base.load("lupine", conf).environment(LEASE, [device()]))


def device() -> ClientDevice:
    return ClientDevice(Address(MASKED, 8308), 512)


@pytest.fixture(scope="module")
def vm(
    image: Path, network: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guest]:
    conf = gsaas.conf.load(files=[])
    data = user_data.compose(conf, base.load("lupine", conf), LEASE, [device()], None)
    folder = tmp_path_factory.mktemp("vm")
    try:
        with Guest(image, folder, network[0], base64.b64decode(data)) as booted:
            yield booted
    except BedError as error:
        pytest.skip(f"no machine can be booted here: {error}")


def test_the_command_gsaas_is_in_it(vm):
    assert "gsaas" in vm.type("gsaas --version").stdout


@pytest.mark.parametrize("reader", READERS)
def test_cloud_init_gives_every_program_the_environment_of_the_lease(vm, environment, reader):
    lines = {line.replace('"', "") for line in vm.type(READERS[reader]).stdout.splitlines()}
    wanted = {f"{name}={value}" for name, value in environment.items()}
    assert wanted <= lines, vm.type("cloud-init status --long; tail /var/log/cloud-init.log").stdout


def test_cloud_init_sets_the_route_to_masked_addresses(vm):
    assert "dev eth0" in vm.type("ip route show 169.254.71.0/24").stdout


def test_the_folder_of_the_client_has_nothing_but_the_client(vm, environment):
    folder = environment["LD_LIBRARY_PATH"]
    assert vm.type(f"ls {shlex.quote(folder)}").stdout.split() == [
        "libcuda.so.1",
        "libnvidia-ml.so.1",
    ]


def test_a_cuda_program_in_it_computes_on_the_gpu_of_its_lease(vm, network):
    """With the environment that cloud-init has set, and nothing else."""
    try:
        built = lupine.built()
    except lupine.NotBuildable as reason:
        pytest.skip(str(reason))
    with built.serving(port=8308, netns=network[1], FAKE_CUDA_GPUS=FIRST):
        done = vm.type("python3 - compute", text=place.source())
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["failed"], found["uuid"]) == ([], FIRST)


def test_an_image_without_the_client_is_not_built(tmp_path):
    """Its VMs would find no CUDA device, and nothing would say why."""
    done = subprocess.run(
        [guest.ELEMENTS / "gsaas-guest/extra-data.d/60-gsaas-guest"],
        env={"PATH": os.environ["PATH"], "GSAAS_GUEST_LIBRARIES": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "names no folder with the client's libcuda.so.1" in done.stderr
