# SPDX-License-Identifier: Apache-2.0
"""A user of the demonstration, who runs `gsaas`: every command is a process of its own, as in a shell."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gsaas.standalone.demo import probe
from gsaas.standalone.demo.program import Program
from gsaas.standalone.demo.screen import Screen
from gsaasclient import CREDENTIALS_VARIABLE, Client, Credentials

MATRICES = Path(__file__).with_name("matrices.py")


def matrices(*options: str) -> list[str]:
    """Return the command that runs the program `matrices`, from the folder of this process."""
    python, program = (os.path.relpath(path) for path in (sys.executable, MATRICES))
    return [python, "-I", program, *options]


class User:
    """Runs commands, and sends requests to the API, with the credentials in a file."""

    def __init__(self, screen: Screen, credentials: Path) -> None:
        self._screen = screen
        self._variables = {CREDENTIALS_VARIABLE: str(credentials)}
        self._client = Client(Credentials.read(credentials))

    def run(self, *words: str) -> bool:
        """Run `gsaas` with *words*, and print command and output; return whether its exit status was 0."""
        self._screen.command(["gsaas", *words])
        done = self._run_silently(words, stderr=subprocess.STDOUT)
        self._screen.output(done.stdout)
        return done.returncode == 0

    def get(self, path: str) -> Any:
        """Return the API's answer to GET *path*, decoded; print nothing."""
        return self._client.request("GET", path)

    def probe(self, lease_id: str, addresses: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Connect to *addresses* from inside the VM of a lease; return what `probe.probe` found at each of them.

        Raises `RuntimeError` if the command cannot be run there.
        """
        words = ["exec", lease_id, "--", sys.executable, "-I", probe.__file__, *addresses]
        done = self._run_silently(words, stderr=subprocess.PIPE)
        if done.returncode:
            raise RuntimeError(f"gsaas {shlex.join(words)} failed: {done.stderr.strip()}")
        return {found["address"]: found for found in map(json.loads, done.stdout.splitlines())}

    def begin_computing(self, name: str, *options: str) -> Program:
        """Run the program `matrices` in the VM of the lease *name*: print the command, and return the program."""
        words = ["exec", name, "--", *matrices(*options)]
        self._screen.command(["gsaas", *words])
        process = subprocess.Popen(
            [Path(sys.executable).with_name("gsaas"), *words],
            env=os.environ | self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return Program(self._screen, name, process)

    def _run_silently(self, words: Sequence[str], stderr: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("gsaas"), *words],
            env=os.environ | self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
