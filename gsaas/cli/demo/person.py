"""Somebody who types `gsaas`: every command is a process of its own, as it is for people."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gsaas.cli.demo import probe
from gsaas.cli.demo.screen import Screen


class Person:
    """Types with the credentials in a file."""

    def __init__(self, screen: Screen, credentials: Path) -> None:
        self._screen = screen
        self._environment = {**os.environ, "GSAAS_CREDENTIALS": str(credentials)}

    def type(self, *words: str) -> bool:
        """Run a command line before everybody's eyes; whether it did what it was asked to."""
        self._screen.command(["gsaas", *words])
        done = self._run(words, stderr=subprocess.STDOUT)
        self._screen.output(done.stdout)
        return done.returncode == 0

    def ask(self, *words: str) -> Any:
        """Run one that answers in JSON, unseen, and return the answer."""
        return json.loads(self._output(*words))

    def probe(self, lease_id: str, addresses: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Try *addresses* from inside the VM of a lease; what was found at each."""
        command = [sys.executable, "-I", probe.__file__, *addresses]
        lines = self._output("exec", lease_id, "--", *command).splitlines()
        return {found["address"]: found for found in map(json.loads, lines)}

    def _output(self, *words: str) -> str:
        done = self._run(words, stderr=subprocess.PIPE)
        if done.returncode:
            raise RuntimeError(f"gsaas {shlex.join(words)} failed: {done.stderr.strip()}")
        return done.stdout

    def _run(self, words: Sequence[str], stderr: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("gsaas"), *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
