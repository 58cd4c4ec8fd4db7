# SPDX-License-Identifier: Apache-2.0
"""What the configuration says of all daemons of a host."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("template", "folder"),
    [
        ("/run/mps/{gpu_uuid}", "/run/mps"),
        ("/run/mps/{gpu_uuid}/pipes/", "/run/mps"),
        ("/run/mps", None),
        ("/run/mps-{gpu_uuid}", None),
        ("/run/{host}/{gpu_uuid}", None),
        *(("/run/{gpu_uuid}", None), ("/var/run/{gpu_uuid}", None), ("/{gpu_uuid}", None)),
        *(("/tmp/{gpu_uuid}", None), ("/var/tmp/mps/{gpu_uuid}", None)),  # noqa: S108
    ],
)
def test_the_mps_folders_of_all_gpus_are_covered_if_nothing_else_is_in_theirs(template, folder):
    conf = gsaas.conf.load(files=[])
    conf.set_override("mps_pipe_directory", template, group="daemons")
    assert confinement(conf, systemd=252).mps_folders == folder
    conf.set_override("memory_limit", "none", group="daemons")
    assert confinement(conf, systemd=252).mps_folders is None
