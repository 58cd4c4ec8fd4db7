# SPDX-License-Identifier: Apache-2.0
"""The C client that the benchmark of generic requests measures with is built from the launcher's own parts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.generics import library_flags

REPOSITORY = Path(__file__).resolve().parents[3]


def test_the_client_compiles_with_the_launchers_headers(tmp_path: Path) -> None:
    source = REPOSITORY / "bench/generics/gsaas_cycle.c"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Werror", f"-I{REPOSITORY / 'launcher'}"]
    command = [
        "cc",
        *flags,
        *library_flags(),
        "-c",
        str(source),
        "-o",
        str(tmp_path / "client.o"),
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
