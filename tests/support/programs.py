# SPDX-License-Identifier: Apache-2.0
"""The programs of declared Debian packages, as a folder of links that is the whole PATH of tests.

    python3 -m tests.support.programs PACKAGE ...       # prints the folder

A program of any other package is on this machine by chance, and is missing on the next one: it is not found here,
either.
Declared are the base system, which every Debian has, the packages named, and what these depend on. Which packages a
folder of tests declares is in packages.txt there.

It imports nothing but the standard library: it runs before there is an environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LINKS = Path(f"/var/tmp/gsaas-programs-{os.getuid()}")  # noqa: S108 (see `folder`)
"""Not in this tree, which other users may be unable to enter: tests start servers as such."""
FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Where packages have programs."""
CHROOT = "chroot"
WRAPPER = """\
#!/bin/sh
# Another root has its own programs, where every root has them.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
exec {program} "$@"
"""
STATE = ("/var/lib/dpkg/status", "/var/lib/dpkg/alternatives", "/etc/alternatives", __file__)
"""What changes when a package is installed or removed, or an alternative is chosen, and this module."""
FIELDS = "${Package}\t${db:Status-Status}\t${Essential}\t${Priority}\t${Pre-Depends}, ${Depends}\t${Provides}\n"


@dataclass(frozen=True)
class Package:
    """An installed package. Of each of the *depends* it needs one; *base* says that every system has it."""

    depends: tuple[tuple[str, ...], ...] = ()
    provides: tuple[str, ...] = ()
    base: bool = False


@dataclass(frozen=True)
class Alternative:
    """A name that several packages provide.

    *chosen* is the program that this machine uses; *priorities* say which one a machine uses that has only some.
    *links* are program -> paths in FOLDERS, of it and its companions -> what these lead to.
    """

    chosen: str
    priorities: Mapping[str, int]
    links: Mapping[str, Mapping[str, str]]

    def among(self, files: set[str]) -> Mapping[str, str]:
        """Return name -> path, for the program that is used where there are only these *files*, if there is one."""
        known = [program for program in self.priorities if program in files]
        if not known:
            return {}
        if self.chosen in known:
            return self.links[self.chosen]
        return self.links[max(known, key=lambda program: self.priorities[program])]


def parse_packages(listed: str) -> dict[str, Package]:
    """Return the installed packages by name, from the lines of dpkg-query (`FIELDS`)."""
    found = {}
    for line in listed.splitlines():
        name, status, essential, priority, depends, provides = line.split("\t")
        if status == "installed":
            alternatives = (_names(each, "|") for each in depends.split(","))
            base = essential == "yes" or priority == "required" or name == "apt"
            found[name] = Package(tuple(filter(None, alternatives)), _names(provides, ","), base)
    return found


def _names(relations: str, separator: str) -> tuple[str, ...]:
    """Return the names of packages in a field, without versions and architectures."""
    words = (re.split(r"[\s(:\[]", each.strip())[0] for each in relations.split(separator))
    return tuple(filter(None, words))


def parse_alternative(text: str) -> Alternative:
    """Return what `update-alternatives --query` says of a name."""
    first, *blocks = text.strip().split("\n\n")
    names = _slaves(first) | {"": _field(first, "Link")}
    programs = {_field(block, "Alternative"): block for block in blocks}
    return Alternative(
        _field(first, "Value"),
        {program: int(_field(block, "Priority")) for program, block in programs.items()},
        {
            program: {
                names[name]: path
                for name, path in (_slaves(block) | {"": program}).items()
                if str(Path(names[name]).parent) in FOLDERS
            }
            for program, block in programs.items()
        },
    )


def _field(block: str, name: str) -> str:
    found = re.search(rf"^{name}: (.*)$", block, re.MULTILINE)
    return found[1] if found else ""


def _slaves(block: str) -> dict[str, str]:
    lines = (line.split() for line in block.splitlines() if line.startswith(" "))
    return {line[0]: line[1] for line in lines}


def closure(installed: Mapping[str, Package], wanted: Iterable[str]) -> set[str]:
    """Return those of the *installed* packages that are *wanted* or in the base system, and what they depend on."""
    providers: dict[str, list[str]] = {}
    for name, package in installed.items():
        for provided in package.provides:
            providers.setdefault(provided, []).append(name)
    found: set[str] = set()
    pending = [*wanted, *(name for name, package in installed.items() if package.base)]
    while pending:
        name = pending.pop()
        if name in found or name not in installed:
            continue
        found.add(name)
        for alternatives in installed[name].depends:
            # The first that is here is the one that apt takes; of those that provide it, any may be.
            pending += next(
                (
                    there
                    for each in alternatives
                    if (there := [each] if each in installed else providers.get(each))
                ),
                [],
            )
    return found


def links(files: set[str], alternatives: Iterable[Alternative]) -> dict[str, str]:
    """Return name -> program, for the programs among the *files* of packages, and for *alternatives*."""
    programs = {
        Path(file).name: file for file in sorted(files) if str(Path(file).parent) in FOLDERS
    }
    for alternative in alternatives:
        for link, path in alternative.among(files).items():
            programs.setdefault(Path(link).name, path)
    return programs


def folder(packages: Iterable[str]) -> Path:
    """Return the folder of links to the programs of *packages*, brought up to date.

    What was right before stays in place, as tests may be using it.
    """
    LINKS.mkdir(mode=0o755, exist_ok=True)
    if LINKS.is_symlink() or LINKS.stat().st_uid != os.getuid():
        raise SystemExit(f"{LINKS} belongs to another user")
    with (LINKS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _up_to_date(sorted(set(packages)))


def _up_to_date(wanted: list[str]) -> Path:
    made = LINKS / hashlib.sha256(" ".join(wanted).encode()).hexdigest()[:12]
    stamp = made.with_suffix(".made-from")
    state = " ".join([*wanted, *(str(Path(path).stat().st_mtime_ns) for path in STATE)])
    if stamp.exists() and stamp.read_text() == state:
        return made
    declared = closure(parse_packages(_ask("dpkg-query", "-W", "-f", FIELDS)), wanted)
    files = set(_ask("dpkg-query", "-L", *sorted(declared)).splitlines())
    programs = links(files, _alternatives())
    made.mkdir(exist_ok=True)
    entering = programs.pop(CHROOT, None)
    for link in made.iterdir():
        if link.name != CHROOT and programs.get(link.name) != str(link.readlink()):
            link.unlink(missing_ok=True)
    for name, program in programs.items():
        if not (made / name).is_symlink():
            (made / name).symlink_to(program)
    if entering is not None:
        unfinished = made.with_suffix(".chroot")
        unfinished.write_text(WRAPPER.format(program=entering))
        unfinished.chmod(0o755)
        unfinished.replace(made / CHROOT)
    stamp.write_text(state)
    return made


def _alternatives() -> Iterator[Alternative]:
    for line in _ask("update-alternatives", "--get-selections").splitlines():
        yield parse_alternative(_ask("update-alternatives", "--query", line.split()[0]))


def _ask(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    print(folder(sys.argv[1:]))
