# SPDX-License-Identifier: Apache-2.0
"""Users, files, links and units of this machine: whether they are as a step says, and what makes them so."""

from __future__ import annotations

import enum
import functools
import grp
import itertools
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from gsaas.setup import texts
from gsaas.setup.plan import File, Folder, Link, Unit, User

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


@functools.singledispatch
def state(step: object, _changed: Collection[str]) -> State:
    """Return how what *step* says is now; *changed* are the paths that were written before it."""
    raise NotImplementedError(step)


@functools.singledispatch
def make(step: object) -> str | None:
    """Make it as *step* says; return what else there is to say, such as where a copy is. Raises `LeftToDo`."""
    raise NotImplementedError(step)


@state.register
def _(step: User, _changed: Collection[str]) -> State:
    try:
        pwd.getpwnam(step.name)
        grp.getgrnam(step.name)
    except KeyError:
        return State.MISSING
    return State.RIGHT


@make.register
def _(step: User) -> None:
    options = ("--system", "--user-group", "--home-dir", "/nonexistent", "--shell")
    run("useradd", *options, "/usr/sbin/nologin", step.name)


@state.register
def _(step: Folder, _changed: Collection[str]) -> State:
    return _access(Path(step.path), 0o750, step.group)


@make.register
def _(step: Folder) -> None:
    Path(step.path).mkdir(parents=True, exist_ok=True)
    _admit(Path(step.path), 0o750, step.group)


@state.register
def _(step: File, _changed: Collection[str]) -> State:
    path = Path(step.path)
    if not path.exists():
        return State.MISSING
    if path.read_text(errors="replace") != step.text:
        return State.DIFFERENT
    return _access(path, step.mode, step.group)


@make.register
def _(step: File) -> str | None:
    path = Path(step.path)
    if not path.parent.is_dir():
        raise LeftToDo(f"there is no folder {path.parent}: install the package that has it")
    said = None
    if path.exists() and path.read_text(errors="replace") != step.text:
        copy = _unused(path)
        shutil.copy2(path, copy)
        shutil.chown(copy, path.stat().st_uid, path.stat().st_gid)
        said = f"what it was is in {copy}"
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(step.text)
    _admit(new, step.mode, step.group)
    new.replace(path)
    return said


@state.register
def _(step: Link, _changed: Collection[str]) -> State:
    path = Path(step.path)
    if not path.is_symlink():
        return State.DIFFERENT if path.exists() else State.MISSING
    return State.RIGHT if str(path.readlink()) == step.target else State.DIFFERENT


@make.register
def _(step: Link) -> None:
    path = Path(step.path)
    if path.exists() and not path.is_symlink():
        raise LeftToDo(f"{path} is a file of somebody else's: move it, or use {step.target}")
    path.unlink(missing_ok=True)
    path.symlink_to(step.target)


@state.register
def _(step: Unit, changed: Collection[str]) -> State:
    if run("systemctl", "is-enabled", "--quiet", step.name, check=False).returncode:
        return State.MISSING
    if not BOOTED.is_dir():
        return State.RIGHT
    if run("systemctl", "is-active", "--quiet", step.name, check=False).returncode:
        return State.MISSING
    if not set(changed).isdisjoint(step.reads):
        return State.DIFFERENT
    # An earlier run may have changed files, and had to leave the unit as it was.
    since = _started(step.name)
    is_old = any(_is_newer(Path(one), since) for one in step.reads)
    return State.DIFFERENT if is_old else State.RIGHT


@make.register
def _(step: Unit) -> str | None:
    booted = BOOTED.is_dir()
    if booted:
        run("systemctl", "daemon-reload")
    run("systemctl", "enable", "--quiet", step.name)
    if not booted:
        return "systemd does not run here: it starts with the machine"
    run("systemctl", "restart", step.name)
    return None


def samples(prefix: Path) -> dict[str, str]:
    """Return the texts of etc/gsaas by their path below it, as installed below *prefix*, or in a clone."""
    clone = Path(__file__).parents[2] / "etc" / "gsaas"
    installed = prefix / "share" / "gsaas" / "etc" / "gsaas"
    folder = installed if installed.is_dir() else clone
    names = ("*.ini", "systemd/*", "polkit/*")
    found = (path for name in names for path in folder.glob(name))
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def of_somebody_else(step: object) -> bool:
    """Whether *step* is a configuration file in whose place there is one that setup has not written."""
    if not isinstance(step, File) or not step.text.startswith(texts.MARK):
        return False
    path = Path(step.path)
    return path.exists() and not path.read_text(errors="replace").startswith(texts.MARK)


def _started(unit: str) -> float:
    """Return when a unit was started, as `time.time` counts."""
    shown = ("--property=InactiveExitTimestampMonotonic", "--value")
    ago = time.monotonic() - int(run("systemctl", "show", *shown, unit).stdout or 0) / 1e6
    return time.time() - ago


def _is_newer(path: Path, moment: float) -> bool:
    return path.exists() and path.stat().st_mtime > moment


def _access(path: Path, mode: int, group: str) -> State:
    try:
        found = path.stat()
    except FileNotFoundError:
        return State.MISSING
    try:
        wanted = (0, grp.getgrnam(group).gr_gid, mode)
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
