# SPDX-License-Identifier: Apache-2.0
"""Every command is a new process, so it loads only the modules that it needs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

OURS_TO_LOAD = {"gsaasclient"}
WATCHED = """
import json, sys
before = set(sys.modules)
from gsaasclient.cli.main import main
main(sys.argv[1:])
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(json.dumps([sorted(loaded), sorted(loaded - set(sys.stdlib_module_names))]), file=sys.stderr)
"""


def loads(*words: str) -> tuple[set[str], set[str]]:
    """Return the top-level modules that a command line loads, and those of them not in the standard library."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words],
        env={"GSAAS_CREDENTIALS": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    everything, foreign = json.loads(done.stderr.splitlines()[-1])
    return set(everything), set(foreign)


def test_help_loads_neither_the_http_library_nor_a_parser():
    everything, foreign = loads("--help")
    assert foreign == OURS_TO_LOAD
    assert everything.isdisjoint({"http", "ssl", "email", "argparse", "typing", "dataclasses"})


@pytest.mark.parametrize("line", ["list -f=yaml", "usage -f=csv", "gpus", "top -once"])
def test_a_request_needs_nothing_but_the_standard_library_until_it_is_answered(line):
    assert loads(*line.split())[1] == OURS_TO_LOAD
