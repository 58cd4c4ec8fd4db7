# SPDX-License-Identifier: Apache-2.0
"""What a machine has to have: users, folders, files, links and units. Each knows whether it is so, and makes it so."""

from __future__ import annotations

import abc
import enum
import grp
import itertools
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gsaas.setup.texts import MARK

BOOTED = Path("/run/systemd/system")
"""There is this folder where systemd runs the machine; in an image that is being built there is not."""


class State(enum.Enum):
    """How something is, compared with how it has to be."""

    MISSING = "missing"
    DIFFERENT = "different"
    RIGHT = "right"


class LeftToDo(Exception):
    """What cannot be done on this machine, or by this command; `commands` are for whoever can."""

    def __init__(self, why: str, commands: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.commands = tuple(commands)


def run(
    *command: str, stdin: str | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; raises `LeftToDo` with what it says if it fails."""
    try:
        done = subprocess.run(
            command, input=stdin or "", capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise LeftToDo(f"{command[0]} cannot be run: {error.strerror}") from error
    if check and done.returncode:
        said = (done.stderr or done.stdout).strip().partition("\n")[0]
        raise LeftToDo(f"{command[0]} failed: {said or done.returncode}")
    return done


class Step(abc.ABC):
    """How something has to be; as text, what the operator reads of it."""

    @abc.abstractmethod
    def state(self) -> State:
        """Return how it is now. Raises `LeftToDo` if that cannot be told."""

    @abc.abstractmethod
    def make(self) -> str | None:
        """Make it so; return what else there is to say, such as where a copy is. Raises `LeftToDo`."""


@dataclass(frozen=True)
class User(Step):
    """A user of the system without a home, and a group of its name."""

    name: str

    def __str__(self) -> str:
        return f"the user and the group {self.name}"

    def state(self) -> State:
        try:
            pwd.getpwnam(self.name)
            grp.getgrnam(self.name)
        except KeyError:
            return State.MISSING
        return State.RIGHT

    def make(self) -> None:
        options = ("--system", "--user-group", "--home-dir", "/nonexistent", "--shell")
        run("useradd", *options, "/usr/sbin/nologin", self.name)


@dataclass(frozen=True)
class Folder(Step):
    """A folder that root and *group* may enter."""

    path: str
    group: str

    def __str__(self) -> str:
        return f"{self.path}, for root and the group {self.group}"

    def state(self) -> State:
        return _access(Path(self.path), 0o750, self.group)

    def make(self) -> None:
        Path(self.path).mkdir(parents=True, exist_ok=True)
        _admit(Path(self.path), 0o750, self.group)


@dataclass(frozen=True)
class File(Step):
    """A file of root's. One that begins with `texts.MARK` replaces none that does not."""

    path: str
    text: str
    mode: int = 0o644
    group: str = "root"

    def __str__(self) -> str:
        return f"{self.path}, mode {self.mode:04o}, of root and the group {self.group}"

    def state(self) -> State:
        found = self._found()
        if found is None:
            return State.MISSING
        if found != self.text:
            return State.DIFFERENT
        return _access(Path(self.path), self.mode, self.group)

    def make(self) -> str | None:
        path = Path(self.path)
        if not path.parent.is_dir():
            raise LeftToDo(f"there is no folder {path.parent}: install the package that has it")
        said = None
        if self._found() not in (None, self.text):
            copy = _unused(path)
            shutil.copy2(path, copy)
            shutil.chown(copy, path.stat().st_uid, path.stat().st_gid)
            said = f"what it was is in {copy}"
        new = path.with_name(f".{path.name}.new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(self.text)
        _admit(new, self.mode, self.group)
        new.replace(path)
        return said

    def is_somebody_elses(self) -> bool:
        """Return whether it is a configuration file in whose place there is one that setup has not written."""
        found = self._found()
        return self.text.startswith(MARK) and found is not None and not found.startswith(MARK)

    def _found(self) -> str | None:
        path = Path(self.path)
        return path.read_text(errors="replace") if path.exists() else None


@dataclass(frozen=True)
class Link(Step):
    """A symbolic link."""

    path: str
    target: str

    def __str__(self) -> str:
        return f"{self.path}, a link to {self.target}"

    def state(self) -> State:
        path = Path(self.path)
        if not path.is_symlink():
            return State.DIFFERENT if path.exists() else State.MISSING
        return State.RIGHT if str(path.readlink()) == self.target else State.DIFFERENT

    def make(self) -> None:
        path = Path(self.path)
        if path.exists() and not path.is_symlink():
            raise LeftToDo(f"{path} is a file of somebody else's: move it, or use {self.target}")
        path.unlink(missing_ok=True)
        path.symlink_to(self.target)


@dataclass(frozen=True)
class Unit(Step):
    """A unit that runs, and starts with the machine; again if one of the files that it *reads* has changed."""

    name: str
    reads: tuple[File, ...]

    def __str__(self) -> str:
        return f"{self.name}, enabled and started"

    def state(self) -> State:
        if run("systemctl", "is-enabled", "--quiet", self.name, check=False).returncode:
            return State.MISSING
        if not BOOTED.is_dir():
            return State.RIGHT
        if run("systemctl", "is-active", "--quiet", self.name, check=False).returncode:
            return State.MISSING
        # An earlier run, too, may have changed files, and had to leave the unit as it was.
        since = _started(self.name)
        is_right = all(
            file.state() is State.RIGHT and Path(file.path).stat().st_mtime <= since
            for file in self.reads
        )
        return State.RIGHT if is_right else State.DIFFERENT

    def make(self) -> str | None:
        booted = BOOTED.is_dir()
        if booted:
            run("systemctl", "daemon-reload")
        run("systemctl", "enable", "--quiet", self.name)
        if not booted:
            return "systemd does not run here: it starts with the machine"
        run("systemctl", "restart", self.name)
        return None


def samples(prefix: Path) -> dict[str, str]:
    """Return the texts of etc/gsaas by their path below it, as installed below *prefix*, or in a clone."""
    clone = Path(__file__).parents[2] / "etc" / "gsaas"
    installed = prefix / "share" / "gsaas" / "etc" / "gsaas"
    folder = installed if installed.is_dir() else clone
    names = ("*.ini", "systemd/*", "polkit/*")
    found = (path for name in names for path in folder.glob(name))
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def _started(unit: str) -> float:
    """Return when a unit was started, as `time.time` counts."""
    shown = ("--property=InactiveExitTimestampMonotonic", "--value")
    ago = time.monotonic() - int(run("systemctl", "show", *shown, unit).stdout or 0) / 1e6
    return time.time() - ago


def _access(path: Path, mode: int, group: str) -> State:
    try:
        found = path.stat()
        wanted = (0, grp.getgrnam(group).gr_gid, mode)
    except FileNotFoundError:
        return State.MISSING
    except KeyError:
        return State.DIFFERENT
    right = (found.st_uid, found.st_gid, found.st_mode & 0o7777) == wanted
    return State.RIGHT if right else State.DIFFERENT


def _admit(path: Path, mode: int, group: str) -> None:
    shutil.chown(path, "root", group)
    path.chmod(mode)


def _unused(path: Path) -> Path:
    """Return the first of FILE.before, FILE.before.2 and so on that is not there."""
    names = (f"{path.name}.before{f'.{n}' if n > 1 else ''}" for n in itertools.count(1))
    return next(copy for name in names if not (copy := path.with_name(name)).exists())
