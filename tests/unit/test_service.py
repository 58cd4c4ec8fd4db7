# SPDX-License-Identifier: Apache-2.0
"""What every process of GSaaS checks before it starts."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from gsaas import conf as gsaas_conf
from gsaas import service
from gsaas.cli import monitor


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
    parts.callback(thread.join)
    print("started", flush=True)
sys.exit(service.run("gsaas-monitor", "", start, ["--config-file", "/dev/null"], stop_timeout=0.1))
"""


def test_a_process_ends_although_a_part_of_it_never_stops():
    with subprocess.Popen([sys.executable, "-c", NEVER_STOPS], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"started\n"
        process.terminate()
        try:
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_a_monitor_waits_for_less_than_a_second():
    assert monitor.STOP_TIMEOUT < 1
