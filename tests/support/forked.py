# SPDX-License-Identifier: Apache-2.0
"""Programs of GSaaS as processes that a server forks, which has imported their modules and what these import later.

Importing takes seconds, which is longer than a program runs that cannot start. All else is as the installed programs
have it: arguments, standard output and error, and the exit status.

    python -m tests.support.forked MODULE ...       # is the server
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

LONGEST = 240
"""Seconds after which a program is ended that has not ended itself."""


class Forks:
    """The server, which imports *modules*. Use it in a `with` block."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules

    def __enter__(self) -> Forks:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked", *self._modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.communicate()

    def run(self, folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the program of a module, such as `gsaas.cli.engine`, to its end; *folder* is for its output.

        One that runs for `LONGEST` is ended, and has the status -14.
        """
        assert self._server.stdin
        assert self._server.stdout
        files = [folder / "stdout", folder / "stderr"]
        print(
            json.dumps([module, arguments, *map(str, files)]), file=self._server.stdin, flush=True
        )
        status = int(self._server.stdout.readline())
        out, err = (file.read_text() for file in files)
        return subprocess.CompletedProcess((module, *arguments), status, out, err)


def main(modules: list[str]) -> None:
    """Import *modules*, and run the program of each line of standard input."""
    for module in modules:
        importlib.import_module(module)
    for line in sys.stdin:
        module, arguments, *files = json.loads(line)
        pid = os.fork()
        if not pid:
            signal.alarm(LONGEST)
            for number, file in enumerate(files, start=1):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.argv = [module, *arguments]
            sys.exit(importlib.import_module(module).main())
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
