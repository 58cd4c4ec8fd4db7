# SPDX-License-Identifier: Apache-2.0
"""How long the command line takes: `gsaas --help` and `gsaas list` beside bare Python.

Each command is a new process from the same virtual environment. `gsaas list` sends its request to an HTTP server in
this process, which answers at once, so that only the client is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.report import machine, median

ROUNDS, QUICK_ROUNDS = 40, 1
LEASE = {
    "id": "7d2d5c0e-8a3c-4f57-9f3e-0b6a4f1f2c11",
    "name": "training",
    "status": "ACTIVE",
    "cgpus": {"count": 2, "mode": "shared", "memory_mb": 2048},
    "server": {"id": "f1f7b3a2-51f4-4f7d-8f58-3d1f0f7f5c33"},
    "degraded": False,
    "created_at": "2026-11-27T09:00:00Z",
}


class LeasesHandler(BaseHTTPRequestHandler):
    """Answers every request with the same three leases."""

    protocol_version = "HTTP/1.1"
    answer = json.dumps({"leases": [LEASE] * 3}).encode()

    def do_GET(self) -> None:
        """Answer a request; called by the base class."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        """Print no log, unlike the base class."""


def run(quick: bool = False) -> dict[str, Any]:
    """Return the median time of each command in milliseconds, and its ratio to that of bare Python."""
    gsaas = str(Path(sys.executable).with_name("gsaas"))
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "gsaas --help": [gsaas, "--help"],
        "gsaas list": [gsaas, "list"],
    }
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    with credentials() as path:
        environment = {**os.environ, "GSAAS_CREDENTIALS": path}
        for turn in range((QUICK_ROUNDS if quick else ROUNDS) + 1):
            for name, command in commands.items():
                begun = time.perf_counter()
                subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
                if turn:  # the first round warms the file cache and the compiled modules
                    seconds[name].append(time.perf_counter() - begun)
    medians = {name: median(taken) * 1000 for name, taken in seconds.items()}
    bare = medians["python -c pass"]
    return {
        "bench": "cli",
        "machine": machine(),
        "rows": [
            {"command": name, "median_ms": taken, "times_bare_python": taken / bare}
            for name, taken in medians.items()
        ],
        "reach": [],
    }


@contextmanager
def credentials() -> Iterator[str]:
    """Run the HTTP server; yield the path of a credentials file for it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), LeasesHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:  # made with mode 0600
        json.dump({"url": f"http://127.0.0.1:{server.server_port}", "token": "any"}, file)
        file.flush()
        yield file.name
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    print(json.dumps(run()))
