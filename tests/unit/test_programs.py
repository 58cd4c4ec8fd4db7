# SPDX-License-Identifier: Apache-2.0
"""Tests find the programs of the packages that they declare, and no others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import programs
from tests.support.programs import Alternative, Package, closure, links

TESTS = Path(__file__).resolve().parents[1]
AWK = """\
Name: awk
Link: /usr/bin/awk
Slaves:
 awk.1.gz /usr/share/man/man1/awk.1.gz
 nawk /usr/bin/nawk
Status: auto
Best: /usr/bin/gawk
Value: /usr/bin/gawk

Alternative: /usr/bin/gawk
Priority: 10
Slaves:
 awk.1.gz /usr/share/man/man1/gawk.1.gz
 nawk /usr/bin/gawk

Alternative: /usr/bin/mawk
Priority: 5
Slaves:
 awk.1.gz /usr/share/man/man1/mawk.1.gz
 nawk /usr/bin/mawk
"""


def test_packages_are_read_with_what_they_need_one_of():
    listed = (
        "bash\tinstalled\tyes\trequired\tlibc6:any (>= 2.36), , base-files | other (<< 3)\t\n"
        "mawk\tinstalled\tno\trequired\t, \tawk (= 1), nawk\n"
        "git\tinstalled\tno\toptional\t, perl\t\n"
        "gone\tconfig-files\tno\toptional\t, perl\t\n"
    )
    assert programs.parse_packages(listed) == {
        "bash": Package((("libc6",), ("base-files", "other")), (), base=True),
        "mawk": Package((), ("awk", "nawk"), base=True),
        "git": Package((("perl",),)),
    }


def test_declared_are_the_base_system_what_is_wanted_and_what_that_needs():
    installed = {
        "bash": Package((("libc6",),), base=True),
        "libc6": Package(),
        "git": Package((("less", "more"), ("smtp",))),
        "more": Package(),
        "exim4": Package((), ("smtp",)),
        "debootstrap": Package((("wget",),)),
        "wget": Package(),
    }
    assert closure(installed, ["git", "missing"]) == {"bash", "libc6", "git", "more", "exim4"}


def test_of_two_alternatives_the_first_that_is_installed_is_taken():
    installed = {"a": Package((("b", "c"),)), "b": Package(), "c": Package()}
    assert closure(installed, ["a"]) == {"a", "b"}


def test_packages_that_need_each_other_are_found():
    installed = {"a": Package((("b",),)), "b": Package((("a",),))}
    assert closure(installed, ["a"]) == {"a", "b"}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"/usr/bin/gawk", "/usr/bin/mawk"}, "/usr/bin/gawk"),
        ({"/usr/bin/mawk"}, "/usr/bin/mawk"),
        (set(), None),
    ],
)
def test_a_name_with_alternatives_leads_to_one_that_is_declared(files, found):
    alternative = programs.parse_alternative(AWK)
    names = links(files, [alternative])
    assert (names.get("awk"), names.get("nawk")) == (found, found)
    assert "awk.1.gz" not in names


def test_only_programs_get_links():
    files = {"/bin/ip", "/usr/sbin/nft", "/usr/share/doc/nft", "/usr/lib/postgresql/15/bin/initdb"}
    nothing = Alternative("", {}, {})
    assert links(files, [nothing]) == {"ip": "/bin/ip", "nft": "/usr/sbin/nft"}


@pytest.mark.slow
def test_each_program_of_the_folder_is_one_of_a_declared_package():
    """dpkg is asked for the owners of some."""
    folder = programs.folder(["python3", "iproute2"])
    assert shutil.which("git", path=str(folder)) is None
    for name in ("ip", "python3", "dpkg", "sh"):
        (folder / name).resolve(strict=True)
        owner = subprocess.run(
            ["dpkg-query", "-S", (folder / name).readlink()],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert re.split("[:,]", owner)[0] in {
            "iproute2",
            "python3-minimal",
            "dpkg",
            "dash",
            "diversion by dash from",
        }


@pytest.mark.slow
def test_a_folder_keeps_up_with_what_is_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(programs, "LINKS", tmp_path)
    folder = programs.folder(["iproute2"])
    (folder / "strange").symlink_to("/usr/bin/strange")
    (folder / "ip").unlink()
    assert programs.folder(["iproute2"]) == folder
    assert not (folder / "ip").exists(), "nothing has been installed since"
    for stamp in tmp_path.glob("*.made-from"):
        stamp.unlink()
    programs.folder(["iproute2"])
    assert (folder / "ip").exists()
    assert not (folder / "strange").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may enter another root")
def test_another_root_has_its_programs_where_every_root_has_them():
    """debootstrap and diskimage-builder enter the roots that they make, in which the folder does not exist."""
    folder = programs.folder(["coreutils"])
    entered = subprocess.run(
        ["chroot", "/", "printenv", "PATH"],
        env={"PATH": str(folder)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert entered.stdout.strip().split(":")[-4:] == ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]


def test_a_folder_of_another_user_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr(programs, "LINKS", tmp_path / "links")
    (tmp_path / "links").symlink_to(tmp_path)
    with pytest.raises(SystemExit, match="belongs to another user"):
        programs.folder(["iproute2"])


@pytest.mark.parametrize("path", sorted(TESTS.glob("**/*packages.txt")), ids=str)
def test_a_list_names_each_package_once(path):
    names = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    assert sorted(set(names)) == sorted(names)
