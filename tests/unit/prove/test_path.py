# SPDX-License-Identifier: Apache-2.0
"""What the proof of a way runs on the consumer's host."""

from __future__ import annotations

import shlex
import subprocess

from gsaas.prove import path
from gsaas.prove import place as places
from gsaas.prove.verdicts import Ran


def test_over_ssh_the_limit_in_time_holds_on_the_far_side(monkeypatch):
    asked = []

    def ended(command, *_more):
        asked.append(list(command))
        return subprocess.CompletedProcess(command, 0, "", "")

    def ran(words, _environment, command):
        asked.append([*command, *words])
        return Ran(None, "not run")

    monkeypatch.setattr(places, "ended", ended)
    monkeypatch.setattr(places, "run", ran)
    list(path.lines("compute1.example.org", 256))
    for command in asked:
        assert command[:4] == ["ssh", "-o", "BatchMode=yes", "compute1.example.org"]
        far = shlex.split(command[4])
        assert far[:5] == ["timeout", "-k", "5", "100", "gsaas"]
    assert [command[5:] for command in asked] == [[], ["compute"], ["exceed", "256"]]
