# SPDX-License-Identifier: Apache-2.0
"""What every process of GSaaS checks before it starts."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from gsaas import conf as gsaas_conf
from gsaas import service
from gsaas.cli import monitor
from gsaas.gpu_host import sources
from tests.support.waiting import PATIENCE


def name_of(host: str | None) -> str:
    conf = gsaas_conf.load([])
    conf.set_override("host", host)
    return service.host_name(conf)


def test_an_agent_reports_under_the_name_that_is_configured():
    assert name_of("Gpu1.Example.org") == "Gpu1.Example.org"


def test_an_agent_without_a_configured_name_uses_the_machines():
    assert name_of(None) == socket.gethostname()


@pytest.mark.parametrize("host", ["gpu 1", "gpu/1", "-gpu1", "gpü1", "gpu1\n", "g" * 201])
def test_an_agent_with_an_invalid_name_does_not_start(host):
    with pytest.raises(service.Unstartable, match=r"is not a host name: .*\[DEFAULT\]host"):
        name_of(host)


NEVER_STOPS = """\
import sys, threading
from gsaas import service
def start(conf, parts):
    thread = threading.Thread(target=threading.Event().wait)  # Python would wait for it
    thread.start()
    WAITS
    print("started", flush=True)
sys.exit(service.run("gsaas-monitor", "", start, ["--config-file", "/dev/null"], stop_timeout=0.1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("waits", ["parts.callback(thread.join)", ""], ids=["part", "thread"])
def test_a_process_ends_although_a_part_or_a_thread_of_it_never_stops(waits):
    program = NEVER_STOPS.replace("WAITS", waits)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"started\n"
        process.terminate()
        try:
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


ANOTHER_THREAD_IS_TOLD = """\
import signal, sys, threading
from gsaas import service
def start(conf, parts):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGHUP])  # of the main thread only
sys.exit(service.run("gsaas-monitor", "", start, ["--config-file", "/dev/null"]))
"""


@pytest.mark.slow
def test_a_signal_counts_whichever_thread_the_kernel_gives_it_to():
    command = [sys.executable, "-c", ANOTHER_THREAD_IS_TOLD]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert any("has started" in line for line in process.stdout)
            process.send_signal(signal.SIGHUP)
            assert any("was read again" in line for line in process.stdout)
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


CPU_HOST = """\
gpu_network = "192.0.2.0/24"
[[hosts]]
name = "cpu01"
gpu_address = "192.0.2.13"
kind = "cpu"
gpus = 1
"""


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {},
            "cpu01 has devices of kind cpu, which .remoting.driver does not serve: set cpu_driver",
        ),
        ({"cpu_driver": "lupine"}, "cpu_driver is lupine, which serves no devices of kind cpu"),
    ],
    ids=str,
)
def test_a_monitor_does_not_start_without_a_driver_for_the_kind_of_its_devices(
    tmp_path, options, reason
):
    inventory = tmp_path / "inventory.toml"
    inventory.write_text(CPU_HOST)
    conf = gsaas_conf.load([], files=[], cli=[monitor.CLEAN])
    conf.set_override("host", "cpu01")
    conf.set_override("source", "declared", "monitor")
    conf.set_override("inventory", str(inventory), "monitor")
    for name, value in options.items():
        conf.set_override(name, value, "remoting")
    assert sources.kind(conf, "cpu01") == "cpu"
    with pytest.raises(service.Unstartable, match=reason), ExitStack() as parts:
        monitor.start(conf, parts)


@pytest.mark.parametrize(("source", "kind"), [("nvml", "cuda"), ("cpu", "cpu")])
def test_devices_that_are_in_no_inventory_are_of_the_kind_of_their_source(source, kind):
    conf = gsaas_conf.load([], files=[])
    conf.set_override("source", source, "monitor")
    assert sources.kind(conf, "gpu01") == kind


def test_a_monitor_waits_for_less_than_a_second():
    assert monitor.STOP_TIMEOUT < 1
