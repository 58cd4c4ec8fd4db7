# SPDX-License-Identifier: Apache-2.0
"""The state directory, in which gsaas-standalone records everything that it makes, with these files and folders:

gsaas.db  tokens.json  grant.key  credentials.json  credentials-demo.json  namespaces/  servers/  lock
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO

from gsaas.standalone.namespaces import Namespaces

IDENTITIES = {
    "admin": ["admin", "manager", "member", "reader"],
    "demo": ["member", "reader"],
}
"""User and project of the same name -> the roles of the user."""


class StateDirUnusable(Exception):
    """The state directory cannot be used; the text says why."""


class AlreadyRunning(StateDirUnusable):
    """Another process uses the state directory."""


class StateDir:
    """The state directory *path*, which one process at a time may use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_file: IO[str] | None = None
        """Open as long as this process has the lock."""

    def lock(self) -> None:
        """Make the folder if it is missing, and lock it until the process ends.

        Raises `AlreadyRunning` if another process has locked it, `StateDirUnusable` if it cannot be used.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock_file = self._file("lock").open("a", encoding="utf-8")
        except OSError as error:
            raise StateDirUnusable(f"cannot use {self.path}: {error.strerror}") from None
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock_file.close()
            raise AlreadyRunning(f"another gsaas-standalone uses {self.path}") from None
        self._lock_file = lock_file

    def unlock(self) -> None:
        """Let another process lock the folder."""
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    def namespaces(self) -> list[str]:
        """Return the names of all namespaces that were made and not removed, sorted."""
        return Namespaces(self.path).names()

    def clean(self) -> None:
        """Remove every namespace that was made, with all interfaces in it, and every file. Raises as `lock`."""
        if not self.path.is_dir():
            return
        self.lock()
        # Namespaces first: their markers are in the folder, and must not be removed before them.
        namespaces = Namespaces(self.path)
        for name in namespaces.names():
            namespaces.remove(name)
        for folder in ("daemons", "namespaces", "servers"):
            shutil.rmtree(self._file(folder), ignore_errors=True)
        own = ["credentials.json", "tokens.json", "grant.key", "lock"]
        own += [f"credentials-{name}.json" for name in IDENTITIES if name != "admin"]
        own += [f"gsaas.db{suffix}" for suffix in ("", "-wal", "-shm")]
        for name in own:
            self._file(name).unlink(missing_ok=True)
        with suppress(OSError):  # other programs have files in it
            self.path.rmdir()

    @property
    def daemons(self) -> Path:
        """The folder for what daemons print, and for their temporary files."""
        return self._file("daemons")

    @property
    def database_url(self) -> str:
        """The URL of the SQLite database in the folder."""
        return f"sqlite:///{self._file('gsaas.db').absolute()}"

    def tokens(self) -> Path:
        """Return the token file of the API; write it with new tokens if there is none."""
        path = self._file("tokens.json")
        if not path.exists():
            entries = [
                {
                    "token": secrets.token_urlsafe(32),
                    "user_id": name,
                    "project_id": name,
                    "roles": roles,
                }
                for name, roles in IDENTITIES.items()
            ]
            _write_private(path, entries)
        return path

    def grant_key(self) -> str:
        """Return the key that signs grants, in the form of [grants]key; make one if there is none."""
        path = self._file("grant.key")
        if not path.exists():
            _write_private(path, f"standalone:{secrets.token_urlsafe(32)}")
        key: str = json.loads(path.read_text(encoding="utf-8"))
        return key

    def write_credentials(self, url: str) -> None:
        """Write the files with URL and token that `gsaas` reads: `credentials.json`, and one more for each tenant."""
        for entry in json.loads(self.tokens().read_text(encoding="utf-8")):
            name = entry["user_id"]
            if name in IDENTITIES:
                suffix = "" if name == "admin" else f"-{name}"
                credentials = {"url": url, "token": entry["token"]}
                _write_private(self._file(f"credentials{suffix}.json"), credentials)

    def _file(self, name: str) -> Path:
        return self.path / name


def _write_private(path: Path, document: object) -> None:
    """Write JSON to *path*, atomically; the file is never readable by others than its owner."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=2)
        file.write("\n")
    draft.replace(path)
