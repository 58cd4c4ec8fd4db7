# SPDX-License-Identifier: Apache-2.0
"""gsaas-engine, or gsaas-manage, with a cloud of its own: a folder, whose files are the servers.

    python -m tests.support.engine_process FOLDER [ARGUMENT OF gsaas-engine ...]
    python -m tests.support.engine_process FOLDER manage [ARGUMENT OF gsaas-manage ...]

Engines that share a folder share the servers. A server that is made is active at once, on the host and with the port
that `port.json` in the folder describes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from gsaas.cli import engine, manage
from gsaas.cloud import base


class FolderCloud(base.Cloud):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self, context: Any, request: Any) -> list[str]:
        return []

    def compute_hosts(self) -> list[str]:
        return [self._port()["host"]]

    def create(self, context: Any, owner: base.Owner, *more: Any) -> base.Server:
        self._file(owner).touch()
        return self.find(owner)

    def find(self, owner: base.Owner) -> base.Server | None:
        if not self._file(owner).exists():
            return None
        port = self._port()
        host = port.pop("host")
        server_id = f"server-{owner.lease_id}"
        return base.Server(server_id, base.ServerStatus.ACTIVE, host, base.Port(**port))

    def list_servers(self) -> list[base.ListedServer]:
        host = self._port()["host"]
        tags = {".server": lambda lease_id: {lease_id}, ".untagged": lambda _: set()}
        return [
            base.ListedServer(
                f"server-{file.stem}", "p", host, frozenset(tags[file.suffix](file.stem))
            )
            for file in self._folder.iterdir()
            if file.suffix in tags
        ]

    def remove_tag(self, server_id: str, lease_id: str) -> None:
        file = self._folder / f"{lease_id}.server"
        file.rename(file.with_suffix(".untagged"))

    def delete(self, owner: base.Owner) -> None:
        self._file(owner).unlink(missing_ok=True)

    def _file(self, owner: base.Owner) -> Path:
        return self._folder / f"{owner.lease_id}.server"

    def _port(self) -> dict[str, str]:
        return json.loads((self._folder / "port.json").read_text())


if __name__ == "__main__":
    cloud = FolderCloud(Path(sys.argv[1]))
    base.load = lambda *_: cloud
    program, words = engine.main, sys.argv[2:]
    if words[:1] == ["manage"]:
        program, words = manage.main, words[1:]
    sys.exit(program(words))
