# SPDX-License-Identifier: Apache-2.0
"""A program that a user runs in a VM: `gsaas.standalone.demo.matrices`."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from gsaas.standalone.demo.proofs import Proof
from gsaas.standalone.demo.screen import Screen

BEGUN = "computing"
"""What it prints when it has begun to compute for as long as it can."""


class Program:
    """A program that runs in the VM of the lease *name*, and prints a line of JSON for each of its cGPUs."""

    def __init__(self, screen: Screen, name: str, process: subprocess.Popen[str]) -> None:
        self._screen = screen
        self._name = name
        self._process = process

    def has_begun(self) -> Proof:
        """Wait until it computes, or has ended; prove that it computes."""
        assert self._process.stdout is not None  # noqa: S101 - it was started with a pipe
        line = self._process.stdout.readline().strip()
        return Proof(line == BEGUN, f"the program in {self._name} computes")

    def goes_on(self) -> Proof:
        """Prove that it has not ended."""
        return Proof(self._process.poll() is None, f"the program in {self._name} computes on")

    def ended(self) -> list[dict[str, Any]]:
        """Wait for its end, print what it has printed, and return that, decoded."""
        printed, _ = self._process.communicate()
        self._screen.output(printed)
        return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
