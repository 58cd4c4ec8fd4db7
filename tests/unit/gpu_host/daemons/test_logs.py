# SPDX-License-Identifier: Apache-2.0
"""What daemons print: where it goes, how much is kept, and for how long."""

from __future__ import annotations

import os
import time

from gsaas.gpu_host.daemons.logs import Logs
from gsaas.objects.daemon import Daemon

DAEMON = Daemon("GPU-1", 20000, lease_id="lease-1", position=2)


def write(logs: Logs, text: str) -> int:
    descriptor = logs.open(DAEMON)
    os.write(descriptor, text.encode())
    return descriptor


def test_a_writer_goes_on_after_its_file_was_cut(tmp_path):
    logs = Logs(tmp_path, limit=10, days=1)
    descriptor = write(logs, "0123456789abc")
    logs.trim(DAEMON)
    os.write(descriptor, b"later\n")
    os.close(descriptor)
    assert logs.path(DAEMON).read_text() == "later\n"
    assert logs.path(DAEMON).with_suffix(".log.1").read_text() == "0123456789abc"
    logs.trim(DAEMON)
    assert logs.path(DAEMON).read_text() == "later\n"


def test_the_last_line_is_the_last_that_says_something(tmp_path):
    logs = Logs(tmp_path, limit=100, days=1)
    assert logs.last_line(DAEMON) == ""
    os.close(write(logs, "one\n  two \n\n"))
    assert logs.last_line(DAEMON) == "two"


def test_old_logs_go_and_their_folders_with_them(tmp_path):
    logs = Logs(tmp_path, limit=100, days=7)
    os.close(write(logs, "old\n"))
    logs.sweep(time.time() + 6 * 86400)
    assert logs.path(DAEMON).exists()
    logs.sweep(time.time() + 8 * 86400)
    assert list(tmp_path.iterdir()) == []


def test_a_gpus_own_daemon_has_a_file_beside_the_leases(tmp_path):
    path = Logs(tmp_path, limit=100, days=7).path(Daemon("MIG-1/3", 8308))
    assert path.relative_to(tmp_path).as_posix() == "gpus/gpu-MIG-1_3.log"


def test_nothing_to_trim_or_sweep_is_no_fault(tmp_path):
    logs = Logs(tmp_path / "never", limit=100, days=7)
    logs.trim(DAEMON)
    logs.sweep()
