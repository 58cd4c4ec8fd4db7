# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage prove` as an operator types it, against the fake CUDA driver."""

from __future__ import annotations

import json
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gsaas.cli import manage
from gsaas.prove import place, report
from tests.support.cuda import driver
from tests.support.waiting import until

pytestmark = pytest.mark.slow

CONFIGURATION = f"""\
[remoting]
driver = rcuda
[daemons]
folder = /
life = per-lease
command = {{python}} {Path(__file__).parents[2] / "support/fake_daemon.py"} {{port}} {{gpu_uuid}}
health = simulated
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return driver.build(tmp_path_factory.mktemp("cuda"))


class Prover:
    """Runs the program, and keeps what it said."""

    def __init__(self, folder: Path, library: Path, capsys) -> None:
        self._folder = folder
        self.library = library
        self._capsys = capsys
        self.said = ""

    def run(self, *words: str, settings: str = "") -> int:
        """Return the exit status."""
        file = self._folder / "gsaas.conf"
        file.write_text(CONFIGURATION + settings)
        return manage.main(["--config-file", str(file), "prove", *words, "--share=256"])

    def prove(self, *words: str, settings: str = "") -> tuple[int, dict[str, str]]:
        """Return the exit status, and the verdict of each line."""
        document = self._folder / "proof.json"
        status = self.run(*words, f"--json={document}", settings=settings)
        self.said = self._capsys.readouterr().out
        lines = json.loads(document.read_text())["lines"]
        return status, {line["name"]: line["verdict"] for line in lines}

    def on_the_gpu_host(self, settings: str = "") -> tuple[int, dict[str, str]]:
        return self.prove("gpu-host", f"--fake={self.library}", settings=settings)


@pytest.fixture
def prover(tmp_path, library, capsys, monkeypatch) -> Prover:
    monkeypatch.setattr("gsaas.prove.jobs.NEIGHBOUR_SECONDS", 1.0)
    # Rates of a fake GPU depend on what else this machine computes.
    monkeypatch.setattr("gsaas.prove.verdicts.LEAST_OF_NATIVE", 0.0)
    return Prover(tmp_path, library, capsys)


def test_a_gpu_host_that_works_passes_every_check_that_can_be_made_here(prover):
    status, verdicts = prover.on_the_gpu_host()
    assert (status, set(verdicts.values()) - {"skip"}) == (0, {"ok"}), prover.said
    for name in (
        "native: program",
        "native: matrix product",
        "in a daemon's place: program",
        "memory limit",
        "neighbour under pressure",
        "end of a program",
        "daemon of rcuda",
        "CUDA in a daemon",
    ):
        assert verdicts[name] == "ok", prover.said


@pytest.mark.parametrize(
    ("variable", "fails"),
    [
        ("FAKE_CUDA_NO_LIMIT", {"memory limit"}),
        ("FAKE_CUDA_WRONG", {"native: program"}),
    ],
)
def test_a_gpu_host_that_does_not_work_is_told_what_to_mend(prover, monkeypatch, variable, fails):
    monkeypatch.setenv(variable, "1")
    status, verdicts = prover.on_the_gpu_host()
    assert status == 1
    assert fails <= {name for name, verdict in verdicts.items() if verdict == "fail"}
    assert "To mend before tenants come:" in prover.said


def test_a_gpu_without_memory_for_twice_the_share_says_that_its_limit_is_not_proved(
    prover, monkeypatch
):
    monkeypatch.setenv("FAKE_CUDA_MIB", "560")  # the neighbour has 64 of them
    _, verdicts = prover.on_the_gpu_host()
    assert verdicts["memory limit"] == "skip", prover.said
    assert "MiB free, less than twice the limit of 256" in prover.said


def test_a_limit_that_is_only_the_end_of_the_gpu_fails(prover, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_MIB", "1000")
    monkeypatch.setenv("FAKE_CUDA_NO_LIMIT", "1")
    status, verdicts = prover.on_the_gpu_host()
    assert (status, verdicts["memory limit"]) == (1, "fail"), prover.said


@pytest.mark.parametrize("name", ["daemon of rcuda", "in a daemon's place: program"])
def test_an_interrupted_proof_says_so_and_leaves_no_process(prover, capsys, monkeypatch, name):
    jobs, begin, table = [], place.begin, report.table

    def recorded(*arguments):
        jobs.append(begin(*arguments))
        return jobs[-1]

    def interrupted(lines):
        if lines[0].name == name:
            raise KeyboardInterrupt
        return table(lines)

    monkeypatch.setattr(place, "begin", recorded)
    monkeypatch.setattr(report, "table", interrupted)
    assert prover.run("gpu-host", f"--fake={prover.library}") == 130
    assert capsys.readouterr().err == "gsaas-manage: interrupted\n"
    assert jobs
    assert not any(job.lives() for job in jobs)


def test_an_interrupted_way_gives_its_lease_back(tmp_path):
    notes = tmp_path / "gsaas.log"
    script = tmp_path / "gsaas"
    script.write_text(
        "#!/bin/sh\n"
        "trap 'echo given back >>\"$0.log\"; exit 1' TERM\n"
        # Its input ends when whoever starts it has it in hand, and would end it.
        "cat >/dev/null\n"
        'echo begun >>"$0.log"\nsleep 600 &\nwait\n'
    )
    script.chmod(0o755)
    # Where tests run in the background, a shell has had them ignore the signal.
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from gsaas.cli import manage; sys.exit(manage.main())"
    )
    words = ["prove", "path", "--from=localhost", f"--gsaas={script}"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *words], stderr=subprocess.PIPE, text=True
    ) as proving:
        until(lambda: notes.exists() and notes.read_text(), "the lease")
        proving.send_signal(signal.SIGINT)
        _, said = proving.communicate(timeout=60)
    assert (proving.returncode, said) == (130, "gsaas-manage: interrupted\n")
    assert notes.read_text() == "begun\ngiven back\n"


def test_a_daemon_that_is_given_another_gpu_fails(prover, monkeypatch):
    other = "GPU-00000000-0000-4000-8000-000000000001"
    monkeypatch.setenv("FAKE_CUDA_GPUS", f"GPU-00000000-0000-4000-8000-000000000000,{other}")
    chosen = f"environment = CUDA_VISIBLE_DEVICES:{other}\n"
    status, verdicts = prover.on_the_gpu_host(chosen)
    assert (status, verdicts["native: GPU"]) == (1, "ok"), prover.said
    assert verdicts["in a daemon's place: GPU"] == "fail", prover.said


def test_a_daemon_that_does_not_start_fails_with_what_it_printed(prover):
    command = f"command = {{python}} {Path(__file__).parents[2]}/support/fake_daemon.py 1 2 fail\n"
    status, verdicts = prover.on_the_gpu_host(command)
    assert (status, verdicts["daemon of rcuda"]) == (1, "fail")
    assert "no licence found" in prover.said


def test_without_a_gpu_it_says_so(capsys, monkeypatch):
    monkeypatch.setattr("gsaas.prove.facts.nvml", lambda _: (None, [], {}))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert manage.main(["prove", "gpu-host"]) == 2
    assert "run it as root" in capsys.readouterr().err


def test_a_host_whose_only_gpu_is_sick_fails_with_its_index(prover, monkeypatch):
    sick = {"GPU of index 0": "GPU is lost"}
    monkeypatch.setattr("gsaas.prove.facts.nvml", lambda _: ("570.86.10", [], sick))
    address = "[monitor]\ngpu_address = 127.0.0.1\n"
    status, verdicts = prover.prove("gpu-host", "--plain", settings=address)
    assert (status, verdicts["GPU of index 0"]) == (1, "fail"), prover.said
    assert "GPU is lost" in prover.said


def test_the_way_from_a_consumers_host_is_proved_with_leases(prover, tmp_path, library):
    """A script stands for `gsaas run`, and gives the program what a lease would."""
    script = tmp_path / "gsaas"
    script.write_text(
        "#!/bin/sh\n"
        'echo "$@" >>"$0.log"\n'
        'while [ "$1" != -- ]; do shift; done; shift\n'
        f"export LD_LIBRARY_PATH={shlex.quote(str(library))} CUDA_DEVICE_MEMORY_LIMIT=256m\n"
        'exec "$@"\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    status, verdicts = prover.prove("path", "--from=localhost", f"--gsaas={script}")
    assert status == 0, prover.said
    assert verdicts["lease"] == verdicts["from localhost: program"] == "ok"
    assert verdicts["memory limit"] == "ok"
    asked = (tmp_path / "gsaas.log").read_text().splitlines()
    assert asked[0] == "run -ncgpus=1 -poolmem=256 -mode=shared -- true"


def test_a_lease_is_bounded_in_time_where_it_is_taken(prover, tmp_path, monkeypatch):
    """The command on the consumer's host ends also if nobody is there any more to end it."""
    monkeypatch.setattr("gsaas.prove.path.LIMITED", ("timeout", "-k", "5", "2"))
    script = tmp_path / "gsaas"
    script.write_text(
        "#!/bin/sh\ntrap 'echo given back >\"$0.log\"; exit 1' TERM\nsleep 600 &\nwait\n"
    )
    script.chmod(0o755)
    status, verdicts = prover.prove("path", "--from=localhost", f"--gsaas={script}")
    assert (status, verdicts) == (1, {"lease": "fail"})
    assert "it does not end" in prover.said
    assert (tmp_path / "gsaas.log").read_text() == "given back\n"


def test_a_lease_that_is_not_given_is_told_with_the_reason(prover, tmp_path):
    status, verdicts = prover.prove(
        "path", "--from=localhost", "--gsaas=sh -c 'echo all GPUs are in use >&2; exit 3'"
    )
    assert (status, verdicts) == (1, {"lease": "fail"})
    assert "all GPUs are in use" in prover.said
