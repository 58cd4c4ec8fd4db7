# SPDX-License-Identifier: Apache-2.0
"""Whether the folder of an MPS control daemon is one that only root, or the monitor's user, can have made."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from gsaas.gpu_host.daemons import memory_limit
from gsaas.remoting.daemon import DaemonCommand

STRANGER = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to another user")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a socket that listens, as that of an MPS control daemon does."""
    made = tmp_path / "mps"
    made.mkdir(mode=0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.bind(str(made / "control"))
        control.listen()
        yield made


def missing(folder: Path) -> str | None:
    required = (f"{folder}/control",)
    command = DaemonCommand(
        ("x",), {}, "/", required_files=required, mps_pipe_directory=str(folder)
    )
    return memory_limit.missing(command)


def test_a_folder_of_roots_is_believed(folder):
    assert missing(folder) is None


def test_also_in_one_where_all_may_write_but_not_replace_what_others_have(folder):
    folder.parent.chmod(0o1777)
    assert missing(folder) is None


def test_a_folder_of_another_user_is_not(folder):
    os.chown(folder, STRANGER, STRANGER)
    assert missing(folder) == (
        f"{folder} belongs to user 65534, who may replace MPS there: start the MPS control daemon with a folder below "
        "/run that root has and only root may write to, and name it in [daemons]mps_pipe_directory"
    )


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_nor_one_where_others_may_write(folder, mode):
    folder.chmod(mode)
    assert f"{folder} has the mode {stat.filemode(stat.S_IFDIR | mode)}" in missing(folder)


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_nor_one_that_others_may_replace(folder, mode):
    folder.parent.chmod(mode)
    assert f"{folder.parent} has the mode" in missing(folder)


def test_nor_one_in_a_folder_of_another_user(folder):
    os.chown(folder.parent, STRANGER, STRANGER)
    assert f"{folder.parent} belongs to user 65534" in missing(folder)


def test_a_link_leads_to_what_is_believed_or_not(folder, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert missing(link) is None
    os.chown(link, STRANGER, STRANGER, follow_symlinks=False)
    assert f"{link} belongs to user 65534" in missing(link)
    os.chown(link, 0, 0, follow_symlinks=False)
    folder.chmod(0o777)
    assert f"{folder} has the mode" in missing(link)


def test_without_a_control_daemon_that_is_what_is_missing(folder, tmp_path):
    assert missing(tmp_path / "elsewhere") == f"there is no {tmp_path}/elsewhere/control"
