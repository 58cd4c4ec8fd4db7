# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage prove limits` as an operator of CPU devices types it: programs compute through real middlewares."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gsaas.cli import manage
from gsaas.prove.place import Process
from gsaas.remoting.ggml import Ggml
from gsaas.remoting.tvm import Tvm
from tests.support import ggml
from tests.support.waiting import until

pytestmark = pytest.mark.kernel

SHARE = 256
LIMIT = "memory limit: RLIMIT_DATA"
NEIGHBOUR = "neighbour under pressure"
CONFIGURATION = """\
[monitor]
source = cpu
gpu_address = 127.0.0.1
cpu_device_cores = 1
cpu_device_memory_mb = 1024
[daemons]
start_timeout = 240
"""


def of_ggml() -> str:
    libraries = ggml.built() / "ggml/lib"
    words = f"-m gsaas.gpu_host.servers.ggml --libraries {libraries} --threads 1"
    return (
        f"command = {{python}} {words} --host {{address}} --port {{port}}\n"
        f"folder = {ggml.REPOSITORY}\n"
        f"[remoting]\ndriver = ggml\nlibrary_path = {libraries}\n"
    )


def of_tvm() -> str:
    return "[remoting]\ndriver = rcuda\ncpu_driver = tvm\n"


OWN_MB = {of_ggml: Ggml.daemon_template.own_memory_mb, of_tvm: Tvm.daemon_template.own_memory_mb}
each_middleware = pytest.mark.parametrize("of", OWN_MB, ids=["ggml", "tvm"])


def prove(folder: Path, settings: str, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit status, and each line by its name."""
    configuration, document = folder / "gsaas.conf", folder / "proof.json"
    configuration.write_text(CONFIGURATION + settings)
    options = ["--plain", f"--share={SHARE}", f"--json={document}"]
    status = manage.main(["--config-file", str(configuration), "prove", *words, *options])
    return status, {line["name"]: line for line in json.loads(document.read_text())["lines"]}


@each_middleware
def test_a_program_is_stopped_at_its_share_while_its_neighbour_computes(of, tmp_path):
    status, lines = prove(tmp_path, of(), "limits")
    assert status == 0, lines
    values = lines[LIMIT]["values"]
    assert (values["way"], values["share_mb"]) == ("RLIMIT_DATA", SHARE)
    assert values["got_mb"] == SHARE + values["beyond_mb"] < values["asked_mb"]
    assert values["got_mb"] <= SHARE + OWN_MB[of]
    assert values["sees"] in ("out of memory", "the end of its connection")
    assert lines[NEIGHBOUR]["values"]["rounds"] > 1
    assert lines["memory limit: MemoryMax"]["verdict"] == "skip"


@each_middleware
def test_a_neighbour_that_is_asked_to_end_while_it_waits_for_its_daemon_gives_its_result(
    of, tmp_path, monkeypatch
):
    """The middleware's library may take a call that a signal interrupts for the end of the daemon."""
    ask = Process.ask_to_end

    def ask_while_it_waits(neighbour: Process) -> None:
        file, daemon = connection_of(neighbour.pid)

        def waits() -> bool:
            # The number of the call, then its arguments; one word while the program runs.
            words = Path(f"/proc/{neighbour.pid}/syscall").read_text().split()
            return words[1:2] == [hex(file)]

        os.kill(daemon, signal.SIGSTOP)
        until(waits, "a call that waits for the daemon")
        ask(neighbour)
        until(lambda: not neighbour.lives() or waits(), "the end of the program or of its signal")
        os.kill(daemon, signal.SIGCONT)

    monkeypatch.setattr(Process, "ask_to_end", ask_while_it_waits)
    status, lines = prove(tmp_path, of(), "limits")
    assert (status, lines[NEIGHBOUR]["verdict"]) == (0, "ok"), lines


def connection_of(pid: int) -> tuple[int, int]:
    """Return the file descriptor of a process's connection, and the process at the other end."""
    listed = subprocess.run(["ss", "-Htnp"], capture_output=True, text=True, check=True).stdout
    connections = [line.split() for line in listed.splitlines()]
    (mine,) = (each for each in connections if f"pid={pid}," in each[-1])
    (theirs,) = (each for each in connections if each[3:5] == [mine[4], mine[3]])
    file, other = re.search(r"fd=(\d+)", mine[-1]), re.search(r"pid=(\d+)", theirs[-1])
    assert file and other, (mine, theirs)
    return int(file[1]), int(other[1])


def test_a_limit_without_effect_fails_the_proof(tmp_path, monkeypatch):
    monkeypatch.setattr("gsaas.prove.place.kept_to_its_share", lambda _command: [])
    status, lines = prove(tmp_path, of_ggml(), "limits")
    assert (status, lines[LIMIT]["verdict"]) == (1, "fail"), lines
    assert lines[LIMIT]["values"]["sees"] == "no limit"
    assert lines[NEIGHBOUR]["verdict"] == "ok"


def test_the_proof_of_a_gpu_host_contains_that_of_its_limits(tmp_path):
    status, lines = prove(tmp_path, of_ggml(), "gpu-host")
    assert (status, lines[LIMIT]["verdict"], lines[NEIGHBOUR]["verdict"]) == (0, "ok", "ok")


def test_a_host_with_less_than_its_devices_need_is_told_so(tmp_path, capsys):
    more = "[monitor]\ncpu_devices = 200\n"
    configuration = tmp_path / "gsaas.conf"
    configuration.write_text(CONFIGURATION + of_tvm() + more)
    words = ["--config-file", str(configuration), "prove", "limits", "--plain"]
    assert manage.main(words) == 2
    assert "200 devices of 1 cores need more than the" in capsys.readouterr().err
