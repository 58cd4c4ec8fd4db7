# SPDX-License-Identifier: Apache-2.0
"""What a runner tells of a daemon that ended, and of its ports."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path

import pytest

import gsaas.conf
from gsaas.gpu_host.daemons.runner import CannotStart
from gsaas.gpu_host.daemons.systemd import Systemd
from gsaas.gpu_host.daemons.unit import Confinement
from gsaas.gpu_host.daemons.unit_runner import UnitRunner
from gsaas.objects.daemon import Daemon
from gsaas.remoting import base


def make_runner(*journal: str) -> UnitRunner:
    settings = base.load("rcuda", gsaas.conf.load(files=[])).daemon_settings
    confinement = Confinement((), 0, 1, 1.0)
    return UnitRunner(settings, "gpu1", "192.0.2.1", Systemd(), confinement, journal=journal)


def last_line(script: str) -> str:
    """Return the last line, with a shell's *script* in place of journalctl; its arguments are $0, $1, …"""
    return make_runner("sh", "-c", script).last_line("0123")


def test_the_newest_entry_with_a_text_is_the_last_line():
    assert last_line(r"printf '\n  \n out of memory \nbefore\n'") == "out of memory"
    assert last_line("true") == ""


def test_it_asks_for_the_newest_entries_of_that_run_first():
    said = last_line('echo "$@"')
    assert {"--reverse", "_SYSTEMD_INVOCATION_ID=0123"} <= set(said.split())


def test_entries_of_any_size_are_not_read_into_memory(tmp_path: Path):
    """The reader gets SIGKILL or SIGPIPE long before the end of what it would print."""
    done = tmp_path / "done"
    endless = "while :; do printf %01024d 0; done"
    said = last_line(f"{endless}; touch {shlex.quote(str(done))}")
    assert said == "0" * 200
    assert not done.exists()


def test_a_line_cannot_command_the_terminal_of_an_operator():
    line = last_line(r"printf 'red \033[31m \007\302\233 \342\200\256 é\n'")
    assert line == "red \ufffd[31m \ufffd\ufffd \ufffd é"


def test_without_journalctl_there_is_no_last_line(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert last_line("true") == ""


def test_a_daemon_does_not_start_while_something_listens_on_the_last_of_its_ports():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        daemon = Daemon("GPU-1", port - 2, ports=3)
        assert make_runner().taken_port(daemon) in daemon.all_ports
        with pytest.raises(CannotStart, match="another process listens on port"):
            make_runner().start(daemon, 0)
