# SPDX-License-Identifier: Apache-2.0
"""Runs `gsaas` in the test's process, against the API on a loopback address."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from werkzeug.serving import WSGIRequestHandler, make_server

from gsaasclient.cli import main
from tests.api.doubles import MemoryEngine
from tests.api.world import World, token


class BusyEngine(MemoryEngine):
    """An engine that processes leases in threads of its own, as the real one does in its process."""

    idle = False
    turn = threading.Lock()

    def lease_changed(self, context, lease_id):
        super().lease_changed(context, lease_id)
        if not self.idle:
            threading.Thread(target=self.settle).start()

    def settle(self):
        with self.turn:  # two threads that settle the same lease would disturb each other
            super().settle()


class Quiet(WSGIRequestHandler):
    """A handler that keeps connections open, as the real server does, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log(self, *_):
        pass


class Desk:
    """Runs `gsaas` in this process and returns its exit status and output."""

    def __init__(self, world: World, url: str, folder: Path, capsys, monkeypatch) -> None:
        self.world = world
        self._url = url
        self._folder = folder
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.sit("member")

    def sit(self, caller: str) -> None:
        """Run further commands with the credentials of *caller*, one of `tests.api.world.CALLERS`."""
        path = self._folder / f"{caller}.json"
        path.write_text(json.dumps({"url": self._url, "token": token(caller)}))
        path.chmod(0o600)
        self.credentials = path
        self._monkeypatch.setenv("GSAAS_CREDENTIALS", str(path))

    def type(self, *words: str) -> tuple[int, str, str]:
        """Run `gsaas` with *words* as its arguments; return its exit status, output and error output."""
        self._capsys.readouterr()
        status = main.main(words)
        output = self._capsys.readouterr()
        return status, output.out, output.err

    def read(self, *words: str):
        """Run a command with `-f json`, which must succeed, and return its parsed output."""
        status, out, err = self.type(*words, "-f", "json")
        assert status == 0, err
        return json.loads(out)


@contextmanager
def served(world: World, folder: Path, capsys, monkeypatch) -> Iterator[Desk]:
    """A desk for *world*, with its files in *folder*."""
    world.engine.__class__ = BusyEngine
    server = make_server("127.0.0.1", 0, world.app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield Desk(world, f"http://127.0.0.1:{server.port}", folder, capsys, monkeypatch)
    server.shutdown()
    thread.join()
    server.server_close()
