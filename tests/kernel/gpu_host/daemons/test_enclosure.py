# SPDX-License-Identifier: Apache-2.0
"""What a daemon sees of the devices, with made-up device nodes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from gsaas.gpu_host.daemons import enclosure
from gsaas.gpu_host.daemons.enclosure import NvidiaDevice

pytestmark = pytest.mark.kernel

LIST_DEV = (
    "import json, os, stat; "
    "print(json.dumps({n: stat.S_ISCHR(os.stat('/dev/' + n).st_mode) for n in os.listdir('/dev')}))"
)
MAKE_NODE = "import os, stat; os.mknod('/dev/nvidia1', stat.S_IFCHR | 0o666, os.makedev(1, 3))"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A /dev with three GPUs, a /proc/driver/nvidia that lists them, and a folder to mount over."""
    if os.geteuid() != 0:
        pytest.skip("mount namespaces need root")
    tmp_path.chmod(0o755)
    dev, gpus = tmp_path / "dev", tmp_path / "proc/gpus"
    dev.mkdir()
    for name in (*enclosure.COMMON, *enclosure.CONTROL, "nvidia0", "nvidia1", "nvidia2", "sda"):
        os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    (dev / "nvidia-caps").mkdir()
    (dev / "nvidia-caps/nvidia-cap1").touch()
    for minor, bus in enumerate(("0000:3b:00.0", "0000:5e:00.0", "0000:86:00.0")):
        (gpus / bus).mkdir(parents=True)
        text = f"Model: \t\t A\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {2 - minor}\n"
        (gpus / bus / "information").write_text(text)
    (tmp_path / "scratch").mkdir()
    return tmp_path


def enclosed(machine: Path, uuid: str, *argv: str, mig: bool = False, **options: object) -> str:
    device = enclosure.read_devices(machine / "proc")[uuid]
    command = enclosure.wrap(
        argv,
        join_file=None,
        device=device,
        nodes=enclosure.nodes(device, mig),
        scratch=machine / "scratch",
        dev=machine / "dev",
        proc=machine / "proc",
        **options,
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.strip()


def test_a_gpus_node_is_known_by_its_uuid(machine):
    assert enclosure.read_devices(machine / "proc") == {
        "GPU-0": NvidiaDevice("nvidia2", "0000:3b:00.0"),
        "GPU-1": NvidiaDevice("nvidia1", "0000:5e:00.0"),
        "GPU-2": NvidiaDevice("nvidia0", "0000:86:00.0"),
    }


def test_a_daemon_sees_its_own_gpu_and_what_every_program_needs(machine):
    seen = json.loads(enclosed(machine, "GPU-1", "/usr/bin/python3", "-c", LIST_DEV))
    expected = {*enclosure.COMMON, *enclosure.CONTROL, "nvidia1"}
    assert {name for name, is_device in seen.items() if is_device} - {
        "stdin",
        "stdout",
        "stderr",
    } == expected
    assert "sda" not in seen
    assert "nvidia-caps" not in seen


def test_a_daemon_on_a_mig_instance_sees_capabilities_too(machine):
    assert "nvidia-cap1" in enclosed(machine, "GPU-1", "ls", "/dev/nvidia-caps", mig=True)


def test_the_other_gpus_cannot_be_found_by_another_way(machine):
    assert enclosed(machine, "GPU-1", "ls", str(machine / "dev")) == ""
    assert enclosed(machine, "GPU-1", "ls", str(machine / "proc/gpus")) == "0000:5e:00.0"


def test_nodes_cannot_be_made_anew(machine):
    """The NVIDIA libraries try to, when they run as root."""
    script = f"{MAKE_NODE}\n"
    output = enclosed(machine, "GPU-0", "sh", "-c", f'python3 -c "{script}" 2>&1 || true')
    assert "Read-only file system" in output


def test_null_and_the_gpu_can_be_used(machine):
    program = "open('/dev/null', 'w').write('x'); open('/dev/nvidia2', 'w').write('x'); print('ok')"
    assert enclosed(machine, "GPU-0", "python3", "-c", program) == "ok"


def test_nobody_else_sees_the_mounts(machine):
    before = Path("/proc/self/mountinfo").read_text()
    enclosed(machine, "GPU-0", "true")
    assert Path("/proc/self/mountinfo").read_text() == before
    assert len(list((machine / "dev").iterdir())) > 10


def test_a_daemon_runs_as_the_user_it_is_told_with_no_way_to_more(machine):
    program = (
        "import os; status = open('/proc/self/status').read(); "
        "print(os.getuid(), [l for l in status.splitlines() if l.startswith(('CapEff', 'NoNew'))])"
    )
    output = enclosed(machine, "GPU-0", "/usr/bin/python3", "-c", program, user="nobody")
    assert output == "65534 ['CapEff:\\t0000000000000000', 'NoNewPrivs:\\t1']"


def test_a_daemon_that_runs_as_root_has_no_capability_either(machine):
    program = "print([l for l in open('/proc/self/status') if l.startswith('CapEff')])"
    output = enclosed(machine, "GPU-0", "/usr/bin/python3", "-c", program)
    assert output == "['CapEff:\\t0000000000000000\\n']"


def test_words_with_spaces_and_quotes_arrive_as_they_are(machine):
    words = ["printf", "%s|", "a b", "c'd", '"', "$HOME", ""]
    assert enclosed(machine, "GPU-0", *words) == "a b|c'd|\"|$HOME||"
