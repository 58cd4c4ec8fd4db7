# SPDX-License-Identifier: Apache-2.0
"""What the configuration says of all daemons of a host."""

from __future__ import annotations

from pathlib import Path

import gsaas.conf
from gsaas.gpu_host.daemons.supervision import confinement


def test_no_daemon_reaches_the_files_that_the_monitor_was_configured_with(tmp_path: Path):
    file, folder = tmp_path / "monitor.conf", tmp_path / "more"
    file.write_text("[daemons]\nhost_memory_mb = 512\ntasks = 99\nstate_dir = /run/elsewhere\n")
    folder.mkdir()
    conf = gsaas.conf.load([f"--config-file={file}", f"--config-dir={folder}"])
    found = confinement(conf, systemd=252)
    assert set(found.hidden) == {"/etc/gsaas", "/run/elsewhere", str(file), str(folder)}
    assert (found.host_memory_mb, found.tasks) == (512, 99)
    assert found.stop_timeout == conf.daemons.stop_timeout
