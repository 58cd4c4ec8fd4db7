# SPDX-License-Identifier: Apache-2.0
"""What another user of a machine tries against the test bed, which runs programs as root from below /var/tmp."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.openstack.bed import files, ownership
from tests.openstack.bed.errors import BedError

STRANGER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@pytest.fixture
def sticky(tmp_path: Path) -> Path:
    """A directory like /var/tmp."""
    path = tmp_path / "tmp"
    path.mkdir()
    path.chmod(0o1777)
    return path


@as_root
def test_a_directory_that_a_stranger_has_made_is_not_used(sticky):
    bed = sticky / "cloud"
    bed.mkdir()
    os.chown(bed, STRANGER, STRANGER)
    for used in (bed, bed / "cache"):
        with pytest.raises(BedError, match=f"belongs to the user {STRANGER}"):
            ownership.make(used)
    assert list(bed.iterdir()) == []


@as_root
def test_a_link_that_a_stranger_has_made_is_not_followed(sticky, tmp_path):
    (tmp_path / "etc").mkdir()
    bed = sticky / "cloud"
    bed.symlink_to(tmp_path / "etc")
    os.lchown(bed, STRANGER, STRANGER)
    with pytest.raises(BedError, match=f"belongs to the user {STRANGER}"):
        ownership.make(bed / "run")
    assert list((tmp_path / "etc").iterdir()) == []


@as_root
def test_a_directory_behind_a_link_of_our_own_is_looked_at(sticky, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, STRANGER, STRANGER)
    (sticky / "cloud").symlink_to(theirs)
    with pytest.raises(BedError, match=f"{theirs} belongs to the user {STRANGER}"):
        ownership.expect_ours(sticky / "cloud")


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_directory_that_others_can_write_is_not_used(tmp_path, mode):
    bed = tmp_path / "cloud"
    bed.mkdir()
    bed.chmod(mode)
    for used in (bed, bed / "cache"):
        with pytest.raises(BedError, match="can be written by others"):
            ownership.make(used)


def test_a_sticky_directory_is_a_place_for_the_bed_but_is_not_the_bed(sticky):
    with pytest.raises(BedError, match="can be written by others"):
        ownership.expect_ours(sticky)
    made = ownership.make(sticky / "cloud" / "passwords", mode=0o700)
    assert made.stat().st_mode & 0o777 == 0o700
    assert made.parent.stat().st_mode & 0o777 == 0o755
    assert ownership.make(made) == made


def test_a_file_with_a_password_is_never_readable_by_others(tmp_path):
    """It was written first and restricted afterwards."""
    path = tmp_path / "nova.conf"
    seen: set[int] = set()
    stop = threading.Event()

    def watch() -> None:
        new = path.with_name("nova.conf.new")
        while not stop.is_set():
            for each in (new, path):
                try:
                    seen.add(each.stat().st_mode & 0o777)
                except FileNotFoundError:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    umask = os.umask(0)
    try:
        for number in range(300):
            files.write(path, f"password = {number}")
    finally:
        os.umask(umask)
        stop.set()
        watcher.join()
    assert seen == {0o600}
    assert files.write(tmp_path / "sudo", "#!/bin/sh\n", mode=0o755).stat().st_mode & 0o777 == 0o755


def test_a_link_in_place_of_an_unfinished_file_is_not_written_through(tmp_path):
    target = tmp_path / "shadow"
    target.write_text("root")
    (tmp_path / "nova.conf.new").symlink_to(target)
    files.write(tmp_path / "nova.conf", "password = 1")
    assert target.read_text() == "root"
    assert (tmp_path / "nova.conf").read_text() == "password = 1"
