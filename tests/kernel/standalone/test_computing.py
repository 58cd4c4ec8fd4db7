# SPDX-License-Identifier: Apache-2.0
"""Programs in VMs compute on cGPUs of other hosts, through real middlewares: what GSaaS promises them, it keeps.

The devices are CPU devices of one GPU host, so leases share them. Each product is compared with the VM's own.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gsaas.gpu_host.daemons import process_runner, unit
from gsaas.remoting.ggml import Ggml
from gsaas.remoting.tvm import Tvm
from gsaas.standalone.demo.user import MATRICES
from tests.kernel.standalone.cloud import Cloud
from tests.support import ggml
from tests.support.waiting import until

pytestmark = pytest.mark.kernel

SHARE = 256
"""MiB of each cGPU."""
TOLERANCE = 1e-3
PRODUCTS = 500
"""Of each of two cGPUs."""
CONFIGURATION = """\
[remoting]
driver = {driver}
[daemons]
lease_ports = 20000-20999
start_timeout = 240
first_pause = 0.1
tmp_mb = 64
{command}
[monitor]
monitor_interval = 1
[standalone]
inventory = {inventory}
"""
INVENTORY = """\
gpu_network = "192.168.50.0/24"
[[hosts]]
name = "gpu1"
gpu_address = "192.168.50.11"
compute = false
kind = "cpu"
gpus = 2
memory_mb = 1024
[[hosts]]
name = "gpu2"
gpu_address = "192.168.50.12"
compute = false
[[hosts]]
name = "compute1"
gpu_address = "192.168.50.21"
"""


@dataclass(frozen=True)
class Middleware:
    driver: str
    program: Path
    own_mb: int
    """MiB that a daemon may have besides its share."""
    command: str = ""
    python_path: Sequence[Path] = field(default_factory=list)

    def configuration(self, inventory: Path) -> str:
        return CONFIGURATION.format(driver=self.driver, command=self.command, inventory=inventory)


def tvm_rpc() -> Middleware:
    return Middleware("tvm", MATRICES, Tvm.daemon_template.own_memory_mb)


def ggml_rpc() -> Middleware:
    """ggml's own server; where llama.cpp is installed, that is its program `rpc-server`."""
    libraries = ggml.built() / "ggml/lib"
    words = f"-m gsaas.gpu_host.servers.ggml --libraries {libraries} --threads 1"
    return Middleware(
        "ggml",
        ggml.PROGRAM,
        Ggml.daemon_template.own_memory_mb,
        f"command = {{python}} {words} --host {{address}} --port {{port}}\n"
        f"folder = {ggml.REPOSITORY}\n",
        [ggml.FOLDER],
    )


class Program:
    """A program that computes in the VM of a lease."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begun(self) -> Program:
        """Wait until it has a first product of each cGPU."""
        line = self._process.stdout.readline()
        assert line == "computing\n", line + self._process.communicate()[0]
        return self

    def lives(self) -> bool:
        return self._process.poll() is None

    def next_result(self) -> dict[str, Any]:
        """Wait until computing on one of its cGPUs has ended; return what it tells of that."""
        return json.loads(self._process.stdout.readline())

    def results(self) -> dict[int, dict[str, Any]]:
        """Wait for its end; return what it tells of each cGPU."""
        printed, _ = self._process.communicate()
        lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        return {line["cgpu"]: line for line in lines}

    def allocated(self) -> dict[str, Any]:
        printed, _ = self._process.communicate()
        return json.loads(next(line for line in printed.splitlines() if line.startswith("{")))

    def kill(self) -> None:
        """End it and its processes, one for each cGPU: a daemon serves one of them after the other."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Site:
    """A cloud whose cGPUs compute, and the programs that use them."""

    def __init__(self, cloud: Cloud, middleware: Middleware) -> None:
        self.cloud = cloud
        self.middleware = middleware
        self._programs: list[Program] = []

    def launch(self, count: int = 2) -> dict[str, Any]:
        return self.cloud.launch(count=count, mode="shared", memory_mb=SHARE)

    def run(self, lease: dict[str, Any], *options: str) -> Program:
        """Run the program in the VM of a lease, with the environment that the API tells."""
        status, body = self.cloud.call("GET", f"/v1/leases/{lease['id']}/environment")
        assert status == 200, body
        return self._start(self._program(self.cloud.vm(lease), *options), body["environment"])

    def run_with_gsaas(self, host: str, count: int, *options: str) -> Program:
        """Run the program on a host, by `gsaas run`."""
        credentials = self.cloud.state_dir / "credentials.json"
        request = (f"-ncgpus={count}", f"-poolmem={SHARE}", "-mode=shared", f"-on={host}")
        program = self._program(self.cloud.prefix + host, *options)
        gsaas = Path(sys.executable).with_name("gsaas")
        return self._start(
            [gsaas, "run", *request, "--", *program], {"GSAAS_CREDENTIALS": str(credentials)}
        )

    def _program(self, netns: str, *options: str) -> list[str | Path]:
        place = ("ip", "netns", "exec", netns)
        return [*place, sys.executable, self.middleware.program, *options]

    def _start(self, command: Sequence[str | Path], environment: dict[str, str]) -> Program:
        variables = {
            "PYTHONPATH": ":".join(map(str, self.middleware.python_path)),
            "PYTHONSAFEPATH": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "GGML_NO_BACKTRACE": "1",  # else it starts a debugger when it loses a server
        }
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "--", *command],
            env={**os.environ, **variables, **environment},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._programs.append(Program(process))
        return self._programs[-1]

    def daemon(self, lease: dict[str, Any], position: int) -> int:
        """Return the pid of the first process of the daemon of a cGPU."""
        return self.daemons().get(f"{lease['id']}-{position}", 0)

    def daemons(self, host: str = "gpu1") -> dict[str, int]:
        """Return the pid of the first process of each daemon."""
        return {
            unit.parse(description)[0].key: pid
            for pid, description in process_runner.find([self.cloud.prefix + host])
        }

    def connections_to(self, port: str) -> list[str]:
        """Return the connections that a daemon of the GPU host has, as ss(8) lists them."""
        place = ("ip", "netns", "exec", self.cloud.prefix + "gpu1")
        only = ("state", "established", "sport", "=", f":{port}")
        done = subprocess.run(
            [*place, "ss", "-Htn", *only], check=True, capture_output=True, text=True
        )
        return done.stdout.splitlines()

    def all_healthy(self) -> bool:
        """Return whether both devices can be had."""
        _, body = self.cloud.call("GET", "/v1/gpus")
        return len(body["gpus"]) == 2 and all(gpu["withdrawn"] is None for gpu in body["gpus"])

    def reset(self) -> None:
        for program in self._programs:
            program.kill()
        self._programs.clear()
        if self.cloud.process is None:
            self.cloud.start()
        _, body = self.cloud.call("GET", "/v1/leases?all_projects=true")
        for lease in body["leases"]:
            self.cloud.terminate(lease)


with_one_middleware = pytest.mark.parametrize(
    "cloud_that_computes",
    [ggml_rpc, pytest.param(tvm_rpc, marks=pytest.mark.thorough)],
    ids=["ggml", "tvm"],
    indirect=True,
)
"""For what hardly depends on it."""


@pytest.fixture(scope="module", params=[tvm_rpc, ggml_rpc], ids=["tvm", "ggml"])
def cloud_that_computes(request, tmp_path_factory) -> Iterator[Site]:
    with computing(request.param(), tmp_path_factory.mktemp("computing")) as site:
        yield site


@contextmanager
def computing(middleware: Middleware, folder: Path, hosts: str = INVENTORY) -> Iterator[Site]:
    """Run a cloud of these *hosts*, whose cGPUs compute through *middleware*."""
    inventory = folder / "inventory.toml"
    inventory.write_text(hosts)
    cloud = Cloud(folder)
    with cloud.config.open("a", encoding="utf-8") as file:
        file.write(middleware.configuration(inventory))
    try:
        cloud.start()
        yield Site(cloud, middleware)
    finally:
        cloud.remove()


@pytest.fixture
def site(cloud_that_computes) -> Iterator[Site]:
    yield cloud_that_computes
    cloud_that_computes.reset()


def right(results: dict[int, dict[str, Any]], cgpus: Sequence[int] = (0, 1)) -> bool:
    """Return whether each cGPU has multiplied, and never wrong."""
    return set(results) == set(cgpus) and all(
        each["products"] > 0 and each["largest_error"] <= TOLERANCE for each in results.values()
    )


def test_a_thousand_products_on_two_cgpus_are_right_beside_a_neighbours_on_the_same_devices(site):
    lease, neighbour = site.launch(), site.launch()
    devices = [{each["gpu_uuid"] for each in one["devices"]} for one in (lease, neighbour)]
    assert devices[0] == devices[1], "both have a share of each device"
    programs = [site.run(one, f"--rounds={PRODUCTS}") for one in (lease, neighbour)]
    for program in programs:
        results = program.results()
        assert right(results)
        assert [results[cgpu]["products"] for cgpu in (0, 1)] == [PRODUCTS, PRODUCTS]
        assert not [each for each in results.values() if each.get("error")]


@with_one_middleware
def test_a_program_computes_on_both_devices_at_once(site):
    lease = site.launch()
    site.run(lease, "--endless")
    for device in lease["devices"]:
        _, _, port = device["real_address"].rpartition(":")
        until(lambda port=port: site.connections_to(port), "a connection to each daemon")


@with_one_middleware
def test_what_gsaas_run_runs_computes_on_two_cgpus_that_it_gives_back(site):
    program = site.run_with_gsaas("compute1", 2, f"--rounds={PRODUCTS // 5}")
    assert right(program.results())

    def leases() -> list[dict[str, Any]]:
        return site.cloud.call("GET", "/v1/leases?all_projects=true")[1]["leases"]

    until(lambda: not leases(), "the lease to be released")


def test_a_daemon_that_is_killed_ends_its_own_programs_computing_and_no_others(site):
    lease, neighbour = site.launch(), site.launch()
    program, other = (site.run(one, "--endless").begun() for one in (lease, neighbour))
    killed = site.daemon(lease, 0)
    os.kill(killed, signal.SIGKILL)
    cut = program.next_result()
    assert cut["cgpu"] == 0
    assert right({0: cut}, [0])
    assert cut["error"]
    assert program.lives(), "it computes on with its other cGPU"
    program.kill()
    until(lambda: site.daemon(lease, 0) not in (0, killed), "the daemon to be started again")
    until(lambda: well(site, lease), "the same addresses to compute again")
    assert other.lives(), "the neighbour has computed all the time"


def well(site: Site, lease: dict[str, Any]) -> bool:
    """Return whether a new program computes at the addresses of a lease."""
    return right(site.run(lease, "--rounds=3").results(), range(len(lease["devices"])))


def test_the_release_of_a_lease_cuts_what_computes_through_it_and_nothing_else(site):
    lease, neighbour = site.launch(), site.launch()
    program, other = (site.run(one, "--endless").begun() for one in (lease, neighbour))
    site.cloud.terminate(lease)
    results = program.results()
    assert right(results)
    assert all(each["error"] for each in results.values())
    assert other.lives()


@with_one_middleware
def test_the_end_of_a_lease_cuts_what_computes_through_it_also_after_a_restart(site):
    lease, neighbour = site.launch(), site.launch()
    program, other = (site.run(one, "--endless").begun() for one in (lease, neighbour))
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)
    changes = {"lease": {"ends_at": soon.isoformat()}}
    status, body = site.cloud.call("PATCH", f"/v1/leases/{lease['id']}", changes, version="1.11")
    assert status == 200, body
    site.cloud.kill()
    site.cloud.start()
    results = program.results()
    assert right(results)
    assert all(each["error"] for each in results.values())
    site.cloud.await_status(lease, "RELEASED")
    _, body = site.cloud.call("GET", f"/v1/leases/{lease['id']}")
    events = [event["event"] for event in body["lease"]["events"]]
    assert events[-3:] == ["end", "release", "finish"]
    assert other.lives()


def test_the_release_of_a_lease_cuts_its_program_from_a_daemon_that_goes_on(tmp_path):
    """The daemon of a whole device does, so its end is not what ends the program. It then serves another lease.

    It serves one program after the other, so it has to know that this one is gone.
    """
    ggml_alone = ggml_rpc()
    shared = replace(ggml_alone, command=f"{ggml_alone.command}life = per-gpu\n")
    with computing(shared, tmp_path) as site:
        until(site.all_healthy, "the daemons of the devices to answer")
        lease, neighbour = site.launch(), site.launch()
        program = site.run(lease, "--endless").begun()
        before = site.daemons()
        site.cloud.terminate(lease)
        results = program.results()
        assert right(results)
        assert all(each["error"] for each in results.values())
        assert well(site, neighbour)
        assert site.daemons() == before


def test_a_program_that_wants_more_than_its_share_gets_an_error_while_its_neighbour_computes(site):
    lease, neighbour = site.launch(count=1), site.launch()
    other = site.run(neighbour, "--endless").begun()
    greedy = site.run(lease, "--allocate").allocated()
    assert greedy["error"]
    assert 0 < greedy["allocated_mb"] <= SHARE + site.middleware.own_mb
    assert other.lives()
    assert well(site, lease), "its daemon lives, or was started again"


@with_one_middleware
def test_no_program_computes_on_the_cgpus_of_another_lease(site):
    lease, other = site.launch(), site.launch(count=1)
    beyond = lease["devices"][1]["masked_address"]
    real = [device["real_address"] for device in lease["devices"]]
    for address in (beyond, *real):
        assert site.cloud.greeting(other, address)["error"] in (
            "ConnectionRefusedError",
            "OSError",
        )
    assert well(site, lease)


@with_one_middleware
def test_the_readings_of_a_device_are_what_its_daemons_use(site):
    lease = site.launch(count=1)
    (uuid,) = [device["gpu_uuid"] for device in lease["devices"]]

    def reading(name: str) -> float | None:
        status, body = site.cloud.call("GET", "/v1/gpus")
        assert status == 200, body
        (gpu,) = [gpu for gpu in body["gpus"] if gpu["uuid"] == uuid]
        return gpu["reading"] and gpu["reading"][name]

    site.run(lease, "--endless").begun()
    until(lambda: (reading("utilisation") or 0) > 0, "the device to be busy")
    assert reading("used_mb") > 0
    site.cloud.terminate(lease)
    until(
        lambda: reading("utilisation") == reading("used_mb") == 0,
        "the device to be idle, and its daemon, which then has memory still, to be gone",
    )


@with_one_middleware
def test_a_restart_of_the_service_makes_no_product_wrong_and_cuts_no_program(site):
    lease = site.launch()
    program = site.run(lease, "--endless").begun()
    for _ in range(2):
        site.cloud.kill()
        site.cloud.start()
    restarted = time.monotonic()
    site.cloud.terminate(lease)
    results = program.results()
    assert right(results)
    assert all(each["at"] > restarted for each in results.values()), "only the release has cut it"
