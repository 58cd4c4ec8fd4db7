# SPDX-License-Identifier: Apache-2.0
"""The processes of a deployment say in one sentence what keeps them from starting, and end with status 1."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gsaas.db import migration
from tests.support.forked import Forks
from tests.support.waiting import PATIENCE

SERVICE_USER = """\
[service_user]
auth_type = password
auth_url = http://192.0.2.1:5000/v3
username = gsaas
password = secret
project_name = service
user_domain_name = Default
project_domain_name = Default
"""
NOVA = "[engine]\ncloud = nova\n"
NOWHERE = "[DEFAULT]\ntransport_url = rabbit://gsaas:secret@127.0.0.1:1/\n"
"""A message bus where nobody listens."""
UNPRIVILEGED = ("setpriv", "--bounding-set=-all", "--") if os.geteuid() == 0 else ()
"""What a command begins with that is to have no capability."""

PROGRAMS = ("engine", "rodvr", "monitor")
LATER = ("gsaas.cloud.nova.cloud", "gsaas.db.migration")
"""What an engine imports when it knows its settings."""

Refusal = Callable[..., str]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks(*(f"gsaas.cli.{program}" for program in PROGRAMS), *LATER) as forks:
        yield forks


@pytest.fixture
def refusal(forks: Forks, tmp_path: Path) -> Refusal:
    """Start a process that cannot start; return what it says on its last line."""

    def refusal(program: str, settings: str, *words: str) -> str:
        path = tmp_path / "gsaas.conf"
        path.write_text(settings)
        done = forks.run(tmp_path, f"gsaas.cli.{program}", "--config-file", str(path), *words)
        assert done.returncode == 1
        return done.stderr.splitlines()[-1]

    return refusal


@pytest.fixture
def database(tmp_path: Path) -> str:
    """The section of a configuration that names a database without tables."""
    return f"[database]\nconnection = sqlite:///{tmp_path / 'gsaas.sqlite'}\n"


def test_a_configuration_file_that_is_not_there(refusal: Refusal):
    said = refusal("engine", "", "--config-file", "/nonexistent/gsaas.conf")
    assert said == (
        "gsaas-engine: the configuration cannot be used: Failed to find some config files: "
        "/nonexistent/gsaas.conf"
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_process_warns_of_options_that_it_does_not_know(
    forks: Forks, program: str, tmp_path: Path
):
    path = tmp_path / "gsaas.conf"
    path.write_text(f"{NOWHERE}[rodvr]\nfarewell = 7\n[engine]\nwokers = 3\n")
    done = forks.run(tmp_path, f"gsaas.cli.{program}", "--config-file", str(path))
    assert "[rodvr]farewell is deprecated: write [rodvr]grace instead" in done.stdout
    assert "no process reads [engine]wokers: do you mean [engine]workers?" in done.stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_value_that_cannot_be_one_wherever_it_is(refusal: Refusal, program: str):
    said = refusal(program, "[engine]\nworkers = many\n")
    assert said.startswith(f"gsaas-{program}: the configuration cannot be used: ")
    assert ":2: [engine]workers: 'many' is not a whole number of at least 1" in said


def test_an_engine_of_a_cloud_that_is_not_installed(refusal: Refusal):
    said = refusal("engine", "[engine]\ncloud = standalone\n")
    assert said.endswith("there is no cloud 'standalone'; those here are nova")


def test_an_engine_that_does_not_know_as_whom_to_ask_nova(refusal: Refusal):
    assert "[service_user] has no auth_type" in refusal("engine", NOVA)


def test_an_engine_without_a_database(refusal: Refusal):
    assert refusal("engine", NOVA + SERVICE_USER) == (
        "gsaas-engine: no database is configured: set connection in the section [database]"
    )


def test_an_engine_whose_database_has_no_tables(refusal: Refusal, database: str):
    assert refusal("engine", NOVA + SERVICE_USER + database) == (
        "gsaas-engine: the database has no tables of GSaaS yet; run: gsaas-manage db upgrade"
    )


def test_an_engine_without_a_message_bus(refusal: Refusal, database: str):
    migration.upgrade(database.partition("= ")[2].strip())
    assert refusal("engine", NOWHERE + NOVA + SERVICE_USER + database) == (
        "gsaas-engine: there is no message bus: cannot connect: [Errno 111] Connection refused; "
        "start it, or correct transport_url in the configuration"
    )


def test_an_agent_that_could_sign_in_every_name(refusal: Refusal, tmp_path: Path):
    inventory = tmp_path / "hosts.toml"
    inventory.write_text(
        'gpu_network = "192.0.2.0/24"\n[[hosts]]\nname = "gpu1"\ngpu_address = "192.0.2.11"\n'
        'gpus = 1\nmodel = "NVIDIA A2"\nmemory_mb = 1024\n'
    )
    settings = (
        "[DEFAULT]\nhost = gpu1\ntransport_url = rabbit://gsaas:secret@127.0.0.1:1/\n"
        "[bus]\nsecrets = of-the-controllers\nhost_keys = of-gpu1\n"
        "[remoting]\ndriver = simulated\n"
        f"[monitor]\nsource = simulated\ninventory = {inventory}\n"
    )
    assert refusal("monitor", settings) == (
        "gsaas-monitor: [bus]secrets is set where this agent reads it; it is for controllers only, as whoever has it "
        "can sign in the name of every host. Have gsaas-monitor read a configuration file of its own (--config-file), "
        "with [bus]host_keys and without secrets; on a controller, gsaas-manage bus key gpu1 --role gpu prints the key"
    )


def test_an_engine_with_the_key_of_an_agent(refusal: Refusal, database: str):
    migration.upgrade(database.partition("= ")[2].strip())
    said = refusal(
        "engine", NOWHERE + "[bus]\nhost_keys = of-ctl1\n" + NOVA + SERVICE_USER + database
    )
    assert said.startswith("gsaas-engine: [bus]host_keys is set where a controller reads it")


def test_an_engine_with_a_message_bus_of_no_known_kind(refusal: Refusal, database: str):
    migration.upgrade(database.partition("= ")[2].strip())
    pigeons = "[DEFAULT]\ntransport_url = pigeon://loft/\n"
    said = refusal("engine", pigeons + NOVA + SERVICE_USER + database)
    assert said.startswith("gsaas-engine: there is no message bus: ")
    assert "pigeon" in said


def test_an_engine_with_a_bus_for_notifications_of_no_known_kind(refusal: Refusal, database: str):
    migration.upgrade(database.partition("= ")[2].strip())
    buses = (
        "[DEFAULT]\ntransport_url = fake://\n"
        "[oslo_messaging_notifications]\ntransport_url = pigeon://loft/\n"
    )
    said = refusal("engine", buses + NOVA + SERVICE_USER + database)
    assert said.startswith("gsaas-engine: notifications cannot be sent: ")
    assert "pigeon" in said


def test_an_endpoint_without_the_capability_that_it_needs(tmp_path: Path):
    (tmp_path / "gsaas.conf").touch()
    words = ("-m", "gsaas.cli.rodvr", "--config-file", tmp_path / "gsaas.conf")
    command = [*UNPRIVILEGED, sys.executable, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "gsaas-rodvr: programming nftables needs CAP_NET_ADMIN: run it as root, or grant it that "
        "capability"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="needs CAP_NET_ADMIN")
def test_an_endpoint_without_its_interface(refusal: Refusal):
    assert refusal("rodvr", "[rodvr]\ngpu_device = no-such\n") == (
        "gsaas-rodvr: there is no interface no-such, which is to reach the GPU network; "
        "set gpu_device in the section [rodvr]"
    )


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="NVIDIA's driver is here")
def test_a_monitor_without_a_driver(refusal: Refusal):
    said = refusal("monitor", "[monitor]\ngpu_address = 192.0.2.1\n")
    assert said == (
        "gsaas-monitor: NVIDIA's driver is not installed on this host: libnvidia-ml.so.1 cannot be loaded. Install "
        "the driver, or say in [monitor] what the GPUs are: source = declared"
    )


def test_a_monitor_that_does_not_know_its_address(refusal: Refusal):
    said = refusal("monitor", "")
    assert said == (
        "gsaas-monitor: the address of this host on the GPU network is not known: set gpu_address in the section "
        "[monitor]"
    )


def test_a_monitor_without_an_inventory(refusal: Refusal):
    said = refusal(
        "monitor", "[monitor]\nsource = declared\ninventory = /nonexistent/inventory.toml\n"
    )
    assert said.startswith("gsaas-monitor: cannot read the inventory: ")


def test_a_monitor_whose_host_is_not_declared(refusal: Refusal, tmp_path: Path):
    inventory = tmp_path / "inventory.toml"
    inventory.write_text(
        'gpu_network = "192.0.2.0/24"\n[[hosts]]\nname = "gpu1"\ngpu_address = "192.0.2.1"\ngpus = 1\n'
    )
    assert refusal(
        "monitor", f"[monitor]\nsource = declared\ninventory = {inventory}\n", "--host", "gpu2"
    ) == ("gsaas-monitor: no GPU host gpu2 is declared; those that are: gpu1")
