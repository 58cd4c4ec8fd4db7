# SPDX-License-Identifier: Apache-2.0
"""The images start as they are documented to: as their users, with the rights of their units and no others."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from gsaas.db import migration
from gsaas.db.database import Database
from images.build import ROLES
from tests.api.world import fill, token, write_tokens
from tests.support import rows
from tests.support.quadlet import run_options

UID = 10071
MONITOR_UID = 10072
LEASE = "0b0e4f6c-61d5-4a56-9c0c-0d8f52d7a3c1"
TIMED_OUT = 28
"""The exit status of curl when an answer took too long."""
PATIENCE = 120
"""Seconds for a process to start on a busy machine."""
AGENT = "[DEFAULT]\ntransport_url = {bus}\n[remoting]\ndriver = simulated\n"
NO_BUS = "rabbit://gsaas:secret@127.0.0.1:1/"
API = """
[DEFAULT]
transport_url = in-process://
[api]
auth_strategy = token-file
token_file = /etc/gsaas/tokens.json
[database]
connection = sqlite:////etc/gsaas/gsaas.db
[engine]
cloud = nova
[remoting]
driver = simulated
[service_user]
auth_type = none
endpoint = http://127.0.0.1:1
"""


def give(folder: Path) -> Path:
    """Give *folder* and the files in it to the user of the images."""
    for path in (folder, *folder.iterdir()):
        subprocess.run(["chown", f"{UID}:{UID}", path], check=True)
    return folder


def configuration(folder: Path, name: str, text: str) -> Path:
    """Return a folder with the configuration file *name*, to mount at /etc/gsaas."""
    made = folder / "etc"
    made.mkdir()
    (made / name).write_text(text, encoding="utf-8")
    return give(made)


def wait_for(condition, what: str):
    """Return the first true value of *condition()*."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.2)
    return value


@pytest.fixture
def started(podman, image):
    """Return a function that starts the service of a role as its unit does, but for volumes, devices and network."""
    names = []

    def start(role: str, etc: Path, network: str, *options: str) -> str:
        names.append(name := f"gsaas-{role}-{uuid.uuid4().hex[:8]}")
        rights = run_options(role, "Volume", "Network", "AddDevice")
        etc_gsaas = f"--volume={etc}:/etc/gsaas:rw"
        where = f"--network={network}"
        podman("run", "-d", f"--name={name}", where, etc_gsaas, *rights, *options, image(role))
        return name

    yield start
    for name in names:
        podman("rm", "--force", "--time=2", name)


@pytest.fixture
def refusal(podman, started):
    """Return a function that starts a service that cannot start, and returns what it says."""

    def of(role: str, etc: Path, network: str) -> str:
        name = started(role, etc, network)
        assert podman("wait", name).stdout.strip() == "1"
        said = podman("logs", name)
        return said.stdout + said.stderr

    return of


@pytest.mark.parametrize("role", ROLES)
def test_an_image_runs_as_its_user_says_what_it_is_and_keeps_no_setting_of_pip(podman, image, role):
    name = image(role)
    (about,) = json.loads(podman("image", "inspect", name).stdout)
    is_monitor = role == "monitor"
    assert about["Config"]["User"] == ("gsaas-monitor" if is_monitor else "gsaas")
    assert about["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert about["Labels"]["org.opencontainers.image.title"] == f"gsaas-{role}"
    assert bool(about.get("Healthcheck")) == (role == "api")
    script = "id -u; ls /etc/pip.conf /run/pip-ca.crt /var/cache/pip 2>&1 | grep -c cannot; ls /opt/gsaas/bin/pip"
    done = podman("run", "--rm", "--network=none", name, "sh", "-c", script, check=False)
    assert done.stdout.split() == [str(MONITOR_UID if is_monitor else UID), "3"]
    history = podman("history", "--no-trunc", "--format={{.CreatedBy}}", name).stdout
    assert "index-url" not in history


def test_the_client_runs_the_commands_of_tenants(podman, image):
    name = image("client")
    run = ("run", "--rm", "--network=none", name)
    assert podman(*run, "gsaas", "--version").stdout == "gsaas 1.0.0\n"
    assert podman(*run).stdout.startswith("usage: gsaas -l -ncgpus=N")
    done = podman(*run, "gsaas", "run", "-ncgpus=1", "--", "true", check=False)
    assert (done.returncode, "credentials" in done.stderr) == (125, True)


def test_kolla_tools_start_an_image_as_root_and_it_becomes_its_user(podman, image, tmp_path):
    mounted = tmp_path / "kolla"
    mounted.mkdir()
    (mounted / "clouds.yaml").write_text("clouds: {}\n")
    own = podman("run", "--rm", image("client"), "cat", "/usr/local/share/gsaas/config.json").stdout
    config = json.loads(own)
    config["command"] = (
        "sh -c 'id -un; stat -c \"%U %a\" /etc/openstack/clouds.yaml; grep CapEff /proc/self/status'"
    )
    (mounted / "config.json").write_text(json.dumps(config))
    for path in mounted.iterdir():
        path.chmod(0o600)
    volume = f"--volume={mounted}:/var/lib/kolla/config_files:ro"
    done = podman("run", "--rm", "--user=root", volume, image("client"), "kolla_start")
    assert done.stdout.split() == ["gsaas", "gsaas", "600", "CapEff:", "0" * 16]
    refused = podman("run", "--rm", volume, image("client"), check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("gsaas-start: [Errno 13] Permission denied")


@pytest.fixture
def api(podman, image, tmp_path) -> Path:
    """Return a folder with all that the API needs, and a lease in its database, to mount at /etc/gsaas."""
    etc = configuration(tmp_path, "gsaas.conf", API)
    ini = podman("run", "--rm", image("api"), "cat", "/etc/gsaas/gsaas-api-uwsgi.ini").stdout
    (etc / "gsaas-api-uwsgi.ini").write_text(ini)
    write_tokens(etc / "tokens.json")
    migration.upgrade(f"sqlite:///{etc}/gsaas.db")
    database = Database.open(f"sqlite:///{etc}/gsaas.db")
    fill(database)
    with database.write() as session:
        session.add(rows.lease(LEASE))
    database.close()
    return give(etc)


def test_the_api_answers_on_loopback_and_answers_what_is_under_way_when_it_is_stopped(
    podman, started, namespace, api
):
    name = started("api", api, f"ns:/run/netns/{namespace}")

    def asking(path: str) -> list[str]:
        header = f"X-Auth-Token: {token('admin')}"
        url = f"http://127.0.0.1:9870{path}"
        return ["ip", "netns", "exec", namespace, "curl", "--silent", "--header", header, url]

    def ask(path: str) -> str:
        return subprocess.run(asking(path), capture_output=True, text=True, check=False).stdout

    def running() -> bool:
        return podman("inspect", "--format={{.State.Running}}", name).stdout == "true\n"

    wait_for(lambda: ask("/healthcheck") or not running(), "the API does not answer")
    assert running(), logs_of(podman, name)
    assert json.loads(ask("/healthcheck")) == {"status": "ok"}
    listed = json.loads(ask("/v1/gpus"))
    assert listed["totals"]["gpus"] == len(listed["gpus"]) > 0
    assert podman("healthcheck", "run", name).returncode == 0
    assert "gsaas_api_requests_total{" in ask("/metrics")  # from the counters of all workers
    written = podman("exec", "--user=root", name, "touch", "/usr/local/bin/x", check=False)
    assert "Read-only file system" in written.stderr

    polls: list[subprocess.Popen[str]] = []
    reports = 0  # about long polls before the last one

    def reported() -> bool:
        """Keep a long poll under way, and return whether a worker has reported that it waits."""
        nonlocal reports
        if not polls or polls[-1].poll() is not None:
            reports = logs_of(podman, name).count(LEASE)
            path = f"/v1/leases/{LEASE}?while_status=CLAIMED&timeout=12"
            polls.append(subprocess.Popen(asking(path), stdout=subprocess.PIPE, text=True))
        podman("exec", name, "touch", "/run/gsaas-api/report")
        return logs_of(podman, name).count(LEASE) > reports and polls[-1].poll() is None

    wait_for(reported, "no worker has reported the long poll")
    outcomes = set()
    with subprocess.Popen(["podman", "stop", name]) as stopping:
        while stopping.poll() is None:
            command = [*asking("/healthcheck"), "--max-time", "8"]
            outcomes.add(subprocess.run(command, capture_output=True, check=False).returncode)
    assert TIMED_OUT not in outcomes
    assert json.loads(polls[-1].communicate()[0])["lease"]["id"] == LEASE
    assert podman("inspect", "--format={{.State.ExitCode}}", name).stdout == "0\n"
    assert "NO MERCY" not in logs_of(podman, name)


@pytest.mark.parametrize("signal", ["TERM", "INT"])
def test_an_api_that_is_stopped_while_its_workers_load_ends_at_once(
    podman, started, namespace, api, signal
):
    """They wait for their configuration: from a pipe, into which nobody writes."""
    (api / "gsaas.conf").unlink()
    os.mkfifo(api / "gsaas.conf")
    name = started("api", give(api), f"ns:/run/netns/{namespace}")
    pipe = wait_for(lambda: opened(api / "gsaas.conf"), "no worker reads its configuration")
    wait_for(lambda: len(readers(api / "gsaas.conf")) == 4, "not every worker reads it")
    podman("kill", f"--signal={signal}", name)
    assert podman("wait", name).stdout == "0\n"
    assert "NO MERCY" not in logs_of(podman, name)
    os.close(pipe)


def logs_of(podman, name: str) -> str:
    logs = podman("logs", name)
    return logs.stdout + logs.stderr


def opened(pipe: Path) -> int | None:
    """Return a descriptor for writing into *pipe*, which keeps its readers waiting; None if it has no reader yet."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        assert error.errno == errno.ENXIO
        return None


def readers(pipe: Path) -> set[str]:
    """Return the ids of the processes that have *pipe* open, but for this one."""
    wanted, found = pipe.stat(), set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it has ended meanwhile
            seen = descriptor.stat()
            if (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino):
                found.add(descriptor.parts[2])
    return found - {str(os.getpid())}


def test_the_engine_says_what_is_missing(refusal, tmp_path):
    etc = configuration(tmp_path, "gsaas.conf", API)
    assert "gsaas-engine: " in (said := refusal("engine", etc, "none"))
    assert "Traceback" not in said


def test_an_endpoint_without_its_interface_or_its_capability_says_so(
    podman, image, refusal, tmp_path, namespace
):
    etc = configuration(tmp_path, "gsaas-rodvr.conf", AGENT.format(bus=NO_BUS))
    assert "gsaas-rodvr: there is no interface gpu0" in refusal("rodvr", etc, "none")
    assert "gsaas-rodvr: there is no message bus" in refusal(
        "rodvr", etc, f"ns:/run/netns/{namespace}"
    )
    done = podman("run", "--rm", "--network=none", image("rodvr"), check=False)
    assert "gsaas-rodvr: programming nftables needs CAP_NET_ADMIN" in done.stderr


def test_an_endpoint_programs_the_kernel_of_its_network_namespace(
    podman, started, namespace, tmp_path
):
    etc = configuration(tmp_path, "gsaas-rodvr.conf", AGENT.format(bus="in-process://"))
    name = started("rodvr", etc, f"ns:/run/netns/{namespace}")

    def tables() -> set[str]:
        command = ["ip", "netns", "exec", namespace, "nft", "-j", "list", "tables"]
        listed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        return {entry["table"]["name"] for entry in listed["nftables"] if "table" in entry}

    def ended() -> str:
        if podman("inspect", "--format={{.State.Running}}", name).stdout == "true\n":
            return ""
        said = podman("logs", name)
        return said.stdout + said.stderr

    wait_for(lambda: tables() or ended(), "there is no table")
    assert not ended(), ended()
    assert any("rodvr" in table for table in tables())
    forwarding = [
        "ip",
        "netns",
        "exec",
        namespace,
        "cat",
        "/proc/sys/net/ipv4/conf/gpu0/forwarding",
    ]
    wait_for(
        lambda: subprocess.run(forwarding, capture_output=True, check=True).stdout == b"1\n",
        "packets of gpu0 are not forwarded",
    )


def test_a_monitor_without_the_driver_of_nvidia_says_so(refusal, tmp_path):
    text = AGENT.format(bus=NO_BUS) + "[monitor]\ngpu_address = 127.0.0.1\n"
    said = refusal("monitor", configuration(tmp_path, "gsaas-monitor.conf", text), "none")
    assert "gsaas-monitor: " in said
    assert "Traceback" not in said
