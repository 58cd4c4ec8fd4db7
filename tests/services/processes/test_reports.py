# SPDX-License-Identifier: Apache-2.0
"""Real processes of an ordinary user report what they do when they are asked, and tell no secrets."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gsaas import version
from gsaas.db import migration
from tests.api.test_deployment import Deployed, make_database
from tests.support import folders
from tests.support.waiting import PATIENCE

NOBODY = 65534
SECRET = "xyzzy-never-shown"
SETTINGS = """
[DEFAULT]
transport_url = in-process://gsaas:{secret}@nowhere/
host = host1
[database]
connection = {connection}
[engine]
cloud = nova
workers = 3
[service_user]
auth_type = password
auth_url = http://127.0.0.1:1/v3
username = gsaas
password = {secret}
project_name = service
user_domain_name = Default
project_domain_name = Default
[nova]
notification_url = in-process://gsaas:{secret}@nowhere/
[grants]
key = 1:{secret}-that-is-as-long-as-a-key-has-to-be
[remoting]
driver = simulated
[monitor]
source = simulated
inventory = {folder}/inventory.toml
[daemons]
fence = false
state_dir = {folder}/state
"""
INVENTORY = """
gpu_network = "192.0.2.0/24"
[[hosts]]
name = "host1"
gpu_address = "192.0.2.1"
gpus = 2
"""


class Reporter:
    """A process that runs as an ordinary user, and what it printed to its stderr."""

    def __init__(
        self, program: str, folder: Path, more: str = "", before: Sequence[str] = ()
    ) -> None:
        """*before* is what the command begins with, if it gives up root's rights itself."""
        connection = f"sqlite:///{folder}/gsaas.db"
        migration.upgrade(connection)
        (folder / "inventory.toml").write_text(INVENTORY)
        settings = folder / "gsaas.conf"
        settings.write_text(
            SETTINGS.format(folder=folder, connection=connection, secret=SECRET) + more
        )
        own = os.geteuid() == 0
        if own:
            for path in (folder, *folder.iterdir()):
                shutil.chown(path, NOBODY, NOBODY)
        self.out, self.err = folder / "out", folder / "err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [
                    *(*before, sys.executable, "-m", f"gsaas.cli.{program}"),
                    *("--config-file", settings),
                ],
                stdout=out,
                stderr=err,
                cwd=folder,
                **(
                    {"user": NOBODY, "group": NOBODY, "extra_groups": []}
                    if own and not before
                    else {}
                ),
            )
        self.wait_for(self.out, f"gsaas-{program} has started")

    def wait_for(self, path: Path, text: str) -> str:
        """Wait until the process has written *text* to *path*; return all that it has written there."""
        deadline = time.monotonic() + PATIENCE
        while text not in path.read_text():
            said = self.out.read_text() + self.err.read_text()
            assert self.process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.05)
        return path.read_text()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(PATIENCE)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that an ordinary user reaches; those of pytest belong to the user who runs it."""
    path = folders.make("reports")
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def sections(report: str) -> dict[str, str]:
    """Return the sections of a report by title: each title is between two lines of `=`."""
    found, lines = {}, report.splitlines()
    for number in range(1, len(lines) - 1):
        if set(lines[number - 1]) == set(lines[number + 1]) == {"="}:
            title = lines[number].strip(" =")
            found[title] = ""
        elif found:
            found[title] += lines[number] + "\n"
    return found


def test_an_engine_reports_what_it_does_when_it_gets_the_signal(folder: Path):
    engine = Reporter("engine", folder)
    try:
        engine.process.send_signal(signal.SIGUSR2)
        report = engine.wait_for(engine.err, "leases that wait")
    finally:
        engine.stop()
    found = sections(report)
    assert f"version = {version.RELEASE}" in found["Package"]
    assert "product = gsaas-engine" in found["Package"]
    assert "engine-worker" in report or "queue.get" in found["Threads"]
    assert "workers = 3" in found["Configuration"]
    assert "username = gsaas" in found["Configuration"]
    assert "oslo.messaging = " in found["Versions"]
    assert "leases that are being reconciled" in found["Engine"]
    assert SECRET not in report
    assert engine.process.returncode == 0


def test_a_monitor_reports_its_desired_state_and_its_daemons(folder: Path):
    monitor = Reporter("monitor", folder)
    try:
        monitor.process.send_signal(signal.SIGUSR2)
        report = monitor.wait_for(monitor.err, "seconds between two reports")
    finally:
        monitor.stop()
    found = sections(report)
    assert "serial = -1" in found["Monitor"]  # no engine has sent one
    assert "host = host1" in found["Monitor"]
    assert SECRET not in report


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace with an interface gpu0."""
    name = f"reports-{os.getpid()}"
    ip = ("ip", "-n", name)
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run([*ip, "link", "add", "gpu0", "type", "veth", "peer", "gpu1"], check=True)
        subprocess.run([*ip, "address", "add", "192.0.2.1/24", "dev", "gpu0"], check=True)
        subprocess.run([*ip, "link", "set", "gpu0", "up"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_an_endpoint_with_one_capability_reports_its_bindings(folder: Path, namespace: str):
    user = (
        *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
        *("--inh-caps=+net_admin", "--ambient-caps=+net_admin", "--"),
    )
    endpoint = Reporter("rodvr", folder, before=("ip", "netns", "exec", namespace, *user))
    try:
        endpoint.process.send_signal(signal.SIGUSR2)
        report = endpoint.wait_for(endpoint.err, "seconds since it reported")
    finally:
        endpoint.stop()
    found = sections(report)
    assert "host = host1" in found["RODVR endpoint"]
    assert "bindings = " in found["RODVR endpoint"]
    assert SECRET not in report


def test_a_file_may_be_watched_instead(folder: Path):
    switch = folder / "switch"
    switch.touch(mode=0o644)
    engine = Reporter("engine", folder, f"[oslo_reports]\nfile_event_handler = {switch}\n")
    try:
        deadline = time.monotonic() + PATIENCE
        while "Guru Meditation" not in engine.err.read_text():
            os.utime(switch, (time.time() + 1, time.time() + 1))
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert engine.process.poll() is None
    finally:
        engine.stop()


def test_each_worker_of_the_api_reports_when_the_file_changes(tmp_path: Path):
    make_database(tmp_path)
    switch = tmp_path / "switch"
    switch.touch(mode=0o644)
    deployed = Deployed(tmp_path, environment={"OS_OSLO_REPORTS__FILE_EVENT_HANDLER": str(switch)})
    try:
        deployed.ask("GET", "/healthcheck")
        deadline = time.monotonic() + PATIENCE
        while deployed.log.read_text().count("leases that long polls wait for") < 2:
            os.utime(switch, (time.time() + 1, time.time() + 1))
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert deployed.ask("GET", "/healthcheck")[0] == 200
    finally:
        deployed.stop()


def test_a_file_that_is_to_be_watched_and_does_not_exist_is_named(tmp_path: Path):
    settings = tmp_path / "gsaas.conf"
    settings.write_text("[oslo_reports]\nfile_event_handler = /nonexistent/switch\n")
    done = subprocess.run(
        [sys.executable, "-m", "gsaas.cli.rodvr", "--config-file", settings],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "gsaas-rodvr: [oslo_reports]file_event_handler: there is no file /nonexistent/switch; create it"
    )
