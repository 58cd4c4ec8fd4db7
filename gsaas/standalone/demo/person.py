"""Somebody who types `gsaas`: every command shown is a process of its own, as it is for people."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gsaas.client import CREDENTIALS_VARIABLE, Client, Credentials
from gsaas.standalone.demo import probe
from gsaas.standalone.demo.screen import Screen


class Person:
    """Types, and asks the API, with the credentials in a file."""

    def __init__(self, screen: Screen, credentials: Path) -> None:
        self._screen = screen
        self._variables = {CREDENTIALS_VARIABLE: str(credentials)}
        self._client = Client(Credentials.read(credentials))

    def type(self, *words: str) -> bool:
        """Run a command line before everybody's eyes; whether it did what it was asked to."""
        self._screen.command(["gsaas", *words])
        done = self._run(words, stderr=subprocess.STDOUT)
        self._screen.output(done.stdout)
        return done.returncode == 0

    def ask(self, path: str) -> Any:
        """What the API says, unseen."""
        return self._client.request("GET", path)

    def probe(self, lease_id: str, addresses: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Try *addresses* from inside the VM of a lease; what was found at each."""
        words = ["exec", lease_id, "--", sys.executable, "-I", probe.__file__, *addresses]
        done = self._run(words, stderr=subprocess.PIPE)
        if done.returncode:
            raise RuntimeError(f"gsaas {shlex.join(words)} failed: {done.stderr.strip()}")
        return {found["address"]: found for found in map(json.loads, done.stdout.splitlines())}

    def _run(self, words: Sequence[str], stderr: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("gsaas"), *words],
            env=os.environ | self._variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
