# SPDX-License-Identifier: Apache-2.0
"""doc/quickstart-real-gpus.md, followed word by word as far as no GPU is needed: its commands are typed as they stand.

Two machines with systemd: one with the network of this one, where packages are installed and the middleware is built,
and one with a network of its own, which is GPU host and cloud (gsaas-standalone). CUDA is the fake driver. The tests go
on from each other, in the order of the page. The image of VMs is built by tests/guest/test_guest.py.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gsaas.prove import program
from tests.kernel.devstack.machine import Machine
from tests.openstack.bed.errors import BedError
from tests.support import folders, lupine, quickstart
from tests.support.cuda import driver
from tests.support.waiting import until

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(1800)]

MIDDLEWARE, GPU_HOST, IMAGE, LEASE = quickstart.headings()[:4]
NVML_HEADERS = "nvidia-nvml-dev-cu12==12.9.79"
PROGRAMS = Path(sys.executable).parent
TOOLKIT = """\
git config --global url.{source}.insteadOf https://github.com/lupinemachines/lupine
git config --global --add safe.directory '*'
cp {shared}/nvidia/nvml_dev/include/nvml.h /usr/local/cuda/include/
mkdir -p /usr/local/cuda/lib64/stubs
cp {shared}/fake/libcuda.so.1 /usr/local/cuda/lib64/stubs/libcuda.so
cp {shared}/fake/libcuda.so.1 /usr/local/cuda/lib64/stubs/libnvidia-ml.so
"""
"""What NVIDIA's toolkit has, and the one here has not."""
MPS_CONTROL = """\
#!/bin/sh
# stands for NVIDIA's: listens at the usual place, and limits nothing
[ "$1" = -d ] || exit 0
setsid --fork python3 -c '
import os, signal, socket
control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
control.bind(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control")
control.listen()
signal.pause()
' </dev/null >/dev/null 2>&1
"""
MORE = """\
[daemons]
own_devices = false
environment = LD_LIBRARY_PATH:/opt/fake,FAKE_CUDA_GPUS:{gpu_uuid}
tmp_mb = 8
stop_timeout = 1
"""
STANDALONE = (
    f"{PROGRAMS}/gsaas-standalone --config-file=/etc/gsaas/gsaas-monitor.conf"
    " --config-file=/etc/gsaas/more.conf --log-file=/run/standalone.log"
)


class Typist:
    """Types commands of the page in a machine, in the folder that both machines see."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.folder = folder

    def type(self, script: str, check: bool = True) -> str:
        """Type *script*; return what it prints."""
        before = (
            f"export HOME=/root GSAAS_CREDENTIALS=/run/gsaas/credentials.json; cd {self.folder}"
        )
        done = self.machine.type(f"{before}\n{script}", check)
        return done.stdout


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    folder = folders.make("quickstart", folders.LARGE)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def booted(shared: Path, *, our_network: bool) -> Iterator[Typist]:
    if os.geteuid() != 0:
        pytest.skip("a machine needs root")
    folder = folders.make("quickstart-machine", folders.LARGE)
    try:
        with Machine(folder, shared, our_network=our_network) as machine:
            yield Typist(machine, shared)
    except BedError as error:
        pytest.skip(str(error))
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def builder(shared: Path) -> Iterator[Typist]:
    """A machine with the toolkit, on which nothing is built yet."""
    try:
        source = lupine.built().server.parents[1] / "source"
    except lupine.NotBuildable as reason:
        pytest.skip(str(reason))
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", shared)
    if subprocess.run([*pip, NVML_HEADERS], capture_output=True, check=False).returncode:
        pytest.skip(f"{NVML_HEADERS} cannot be had")
    driver.build(shared / "fake", lupine.TOOLKIT / "include")
    for typist in booted(shared, our_network=True):
        typist.type(TOOLKIT.format(source=source, shared=shared))
        yield typist


@pytest.fixture(scope="module")
def middleware(builder: Typist, shared: Path) -> Path:
    """The folder `lupine`, as the first section makes it."""
    (block,) = quickstart.blocks(MIDDLEWARE)
    builder.type(block.script)
    return shared / "lupine"


@pytest.fixture(scope="module")
def host(middleware: Path, shared: Path) -> Iterator[Typist]:
    """The GPU host after the commands that need no GPU."""
    _, install, mps, _ = quickstart.blocks(GPU_HOST)
    for typist in booted(shared, our_network=False):
        typist.type(f"mkdir -p /opt/fake /etc/gsaas; cp {shared}/fake/libcuda.so.1 /opt/fake/")
        for name in ("gsaas", "gsaas-manage"):
            typist.type(f"ln -s {PROGRAMS / name} /usr/local/bin/")
        write(typist, "/usr/local/bin/nvidia-cuda-mps-control", MPS_CONTROL, 0o755)
        write(typist, "/etc/gsaas/gsaas-monitor.conf", quickstart.configuration(GPU_HOST))
        write(typist, "/etc/gsaas/more.conf", MORE)
        typist.type(install.script)
        # As in the image of VMs.
        typist.type("install -D -t /opt/lupine/lib lupine/build/libcuda.so.1")
        typist.type(mps.script.replace("GPU-UUID", driver.FIRST))
        yield typist


def write(typist: Typist, path: str, text: str, mode: int = 0o644) -> None:
    typist.type(f"install -m {mode:o} /dev/stdin {path} <<'END'\n{text}\nEND")


@pytest.fixture(scope="module")
def proof(host: Typist) -> dict[str, Any]:
    """What the proof of the GPU host writes."""
    *_, block = quickstart.blocks(GPU_HOST)
    host.type(f"{block.script} --fake || true")
    found: dict[str, Any] = json.loads((host.folder / "proof.json").read_text())
    return found


@pytest.fixture(scope="module")
def cloud(host: Typist) -> Iterator[Typist]:
    """gsaas-standalone, with an MPS control daemon for each of its simulated GPUs."""
    host.type(f"systemd-run --quiet --collect --unit=standalone -- {STANDALONE}")

    def answers() -> bool:
        said = host.type("systemctl is-active standalone || cat /run/standalone.log", check=False)
        assert said.strip() == "active", said
        return bool(host.type("gsaas list -f json || true"))

    until(answers, "the API to answer")
    _, _, mps, _ = quickstart.blocks(GPU_HOST)
    for uuid in gpus(host):
        host.type(mps.script.replace("GPU-UUID", uuid))
    yield host
    host.type("systemctl stop standalone || true")
    host.type(f"{STANDALONE} --clean")


def gpus(host: Typist) -> set[str]:
    return {gpu["uuid"] for gpu in json.loads(host.type("gsaas gpus -f json"))["gpus"]}


@pytest.fixture(scope="module")
def lease(cloud: Typist) -> dict[str, Any]:
    block, *_ = quickstart.blocks(LEASE)
    found: dict[str, Any] = json.loads(cloud.type(f"{block.script} -f json"))
    return found


def test_every_block_says_who_has_run_it():
    for heading in quickstart.headings():
        for block in quickstart.blocks(heading):
            assert len(block.marks) == 1, block.script


def test_server_and_clients_are_built_from_one_commit(middleware):
    made = {path.name for path in (middleware / "build").iterdir()}
    assert {"lupine_driver_server", "libcuda.so.1", "libnvidia-ml.so.1"} <= made


def test_the_proof_of_a_gpu_host_fails_nowhere(proof):
    verdicts = {line["name"]: line["verdict"] for line in proof["lines"]}
    assert "fail" not in verdicts.values()
    assert verdicts["daemon of lupine"] == "ok"
    assert verdicts["through lupine: program"] == "ok"
    assert verdicts["neighbour of a release"] == "ok"


def test_a_program_in_the_vm_of_the_first_lease_computes_on_its_gpu(cloud, lease, shared):
    _, block, _ = quickstart.blocks(LEASE)
    (shared / "program.py").write_text(Path(program.__file__).read_text())
    names = cloud.type("ls /run/netns").split()
    vm = next(name for name in names if name.startswith("gsaas-vm-"))
    script = (
        f'eval "$(gsaas env {lease["id"]})"; ip netns exec {vm} sh -c {shlex.quote(block.script)}'
    )
    found = json.loads(cloud.type(script).splitlines()[-1])
    assert found["failed"] == []
    assert found["uuid"] in gpus(cloud)
