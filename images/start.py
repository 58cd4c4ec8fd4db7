#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""The entry point of every image of GSaaS: it places configuration files, then becomes the command of its role.

1. If `CONFIG` is mounted, its files are placed and its permissions set first. It has the form of Kolla's `config.json`
   (https://docs.openstack.org/kolla/latest/admin/kolla_api.html); of its keys, `command`, `config_files` and
   `permissions` are supported, and any other is an error.
2. The command is the arguments of the container, or else the `command` of `CONFIG`, or else the one of the image,
   GSAAS_COMMAND. With KOLLA_BOOTSTRAP in the environment it is GSAAS_BOOTSTRAP_COMMAND, which prepares the database.
3. Started as root, which may place files for anybody, it becomes GSAAS_USER before the command begins. Of root's
   capabilities the command keeps those that GSAAS_CAPABILITIES names. Started as any other user, it stays that user.

It uses nothing but the standard library, and the Python of the system.
"""

from __future__ import annotations

import glob
import grp
import json
import os
import pwd
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

CONFIG = Path("/var/lib/kolla/config_files/config.json")
CAPABILITY_NUMBERS = {"net_admin": 12, "sys_admin": 21}
"""From linux/capability.h."""

FILE_KEYS = {"source", "dest", "owner", "perm", "optional"}
PERMISSION_KEYS = {"path", "owner", "perm", "recurse"}


class Unusable(Exception):
    """The container cannot start; the text says in one sentence why."""


class Placement(NamedTuple):
    """A file or folder to copy; *owner* is `user` or `user:group`."""

    source: str
    dest: str
    owner: str
    mode: int


class Permission(NamedTuple):
    """An owner, and unless it is None a mode, to give to *path*, and with *recurse* to everything below it."""

    path: str
    owner: str
    mode: int | None
    recurse: bool


class Plan(NamedTuple):
    """What has to be done before the command begins, in this order."""

    placements: list[Placement]
    permissions: list[Permission]
    command: list[str]


def plan(
    config: Mapping[str, Any],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    find: Callable[[str], Sequence[str]] = glob.glob,
) -> Plan:
    """Return what *config*, the *arguments* and the *environment* of the container ask for.

    *find* returns the paths that match a pattern. Raises `Unusable`.
    """
    if unknown := set(config) - {"command", "config_files", "permissions"}:
        raise Unusable(f"{CONFIG} has the key {min(unknown)}, which is not supported")
    placements = []
    for entry in config.get("config_files", []):
        _check(entry, "config_files", FILE_KEYS, {"source", "dest", "owner", "perm"})
        sources = sorted(find(entry["source"]))
        if not sources and not entry.get("optional", False):
            raise Unusable(f"{entry['source']} is missing, which {CONFIG} names")
        for source in sources:
            dest = entry["dest"]
            if dest.endswith("/"):
                dest += Path(source).name
            placements.append(Placement(source, dest, entry["owner"], _mode(entry["perm"])))
    permissions = []
    for entry in config.get("permissions", []):
        _check(entry, "permissions", PERMISSION_KEYS, {"path", "owner"})
        mode = _mode(entry["perm"]) if "perm" in entry else None
        permissions += [
            Permission(path, entry["owner"], mode, entry.get("recurse", False))
            for path in sorted(find(entry["path"]))
        ]
    return Plan(placements, permissions, _command(config, arguments, environment))


def _command(
    config: Mapping[str, Any], arguments: Sequence[str], environment: Mapping[str, str]
) -> list[str]:
    if "KOLLA_BOOTSTRAP" in environment and "GSAAS_BOOTSTRAP_COMMAND" in environment:
        return shlex.split(environment["GSAAS_BOOTSTRAP_COMMAND"])
    # Kolla's tools name its entry point, which is this program.
    if arguments and list(arguments) != ["kolla_start"]:
        return list(arguments)
    return shlex.split(config.get("command") or environment["GSAAS_COMMAND"])


def _check(entry: Mapping[str, Any], section: str, known: set[str], required: set[str]) -> None:
    if unknown := set(entry) - known:
        raise Unusable(f"{section} in {CONFIG} has the key {min(unknown)}, which is not supported")
    if missing := required - set(entry):
        raise Unusable(f"{section} in {CONFIG} lacks the key {min(missing)}")


def _mode(perm: str) -> int:
    if not re.fullmatch(r"(0o)?[0-7]{3,4}", perm):
        raise Unusable(f"{perm} in {CONFIG} is no permission such as 0640")
    return int(perm.removeprefix("0o"), 8)


def place(placement: Placement) -> None:
    """Copy a file or a folder over whatever is at its destination. Raises `OSError` or `LookupError`."""
    source, dest = Path(placement.source), Path(placement.dest)
    if dest.is_dir() and not dest.is_symlink():
        shutil.rmtree(dest)
    dest.parent.mkdir(parents=True, exist_ok=True)
    new = dest.with_name(f".{dest.name}.new")
    if source.is_dir():
        shutil.copytree(source, new)
    else:
        # Never readable by more users than it is meant for, not even for a moment.
        with open(new, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as copy:
            copy.write(source.read_bytes())
    for path in _tree(new):
        permit(path, placement.owner, placement.mode)
    new.replace(dest)


def permit(path: Path, owner: str, mode: int | None) -> None:
    """Give *path* an owner and, unless it is None, a mode. Raises `OSError` or `LookupError`."""
    user, _, group = owner.partition(":")
    uid, gid = pwd.getpwnam(user).pw_uid, grp.getgrnam(group or user).gr_gid
    status = path.stat()
    if (status.st_uid, status.st_gid) != (uid, gid):
        os.chown(path, uid, gid)
    if mode is not None:
        # A folder that may be read may also be entered.
        path.chmod(mode | ((mode & 0o444) >> 2 if path.is_dir() else 0))


def _tree(path: Path) -> Iterator[Path]:
    yield path
    if path.is_dir() and not path.is_symlink():
        yield from (below for below in path.rglob("*") if not below.is_symlink())


def demotion(user: str, capabilities: Sequence[str], permitted: int) -> list[str]:
    """Return the command line that runs a command as *user* with those of *capabilities* that are *permitted*.

    *permitted* is a set of bits, as in `/proc/self/status`. A capability that is not permitted is left out: the command
    itself says best what it needs it for.
    """
    kept = [name for name in capabilities if permitted >> CAPABILITY_NUMBERS[name] & 1]
    words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    if kept:
        added = ",".join(f"+{name}" for name in kept)
        words += [f"--inh-caps={added}", f"--ambient-caps={added}"]
    return [*words, "--"]


def _permitted() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(
        next(line for line in status.splitlines() if line.startswith("CapPrm:")).split()[1], 16
    )


def main(arguments: Sequence[str]) -> int:
    """Do all of this; return the exit status if the command cannot be started."""
    try:
        try:
            config = json.loads(CONFIG.read_bytes())
        except FileNotFoundError:
            config = {}
        planned = plan(config, arguments, os.environ)
        for placement in planned.placements:
            place(placement)
        for permission in planned.permissions:
            for path in (
                _tree(Path(permission.path)) if permission.recurse else [Path(permission.path)]
            ):
                permit(path, permission.owner, permission.mode)
        command = planned.command
        if os.getuid() == 0:
            capabilities = os.environ.get("GSAAS_CAPABILITIES", "").split()
            command = [*demotion(os.environ["GSAAS_USER"], capabilities, _permitted()), *command]
        os.execvp(command[0], command)
    except Unusable as error:
        print(f"gsaas-start: {error}", file=sys.stderr)
    except ValueError as error:
        print(f"gsaas-start: {CONFIG} is no JSON: {error}", file=sys.stderr)
    except (OSError, LookupError) as error:
        print(f"gsaas-start: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
