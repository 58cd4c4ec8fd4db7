# SPDX-License-Identifier: Apache-2.0
"""The systems under test of the benchmark `generic`, GSaaS and Slurm, and small C programs that are their clients."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LAUNCHER = HERE.parents[1] / "launcher"
LAUNCHER_LIBRARIES = ("libevent_core", "libevent_extra", "jansson", "nettle")
"""What pkg-config calls the libraries of the launcher, without those for https."""
EMPTY_SCRIPT = "#!/bin/bash\n"


class Programs:
    """The C programs of this folder, compiled into *folder*, and an empty script there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.empty_script = folder / "empty.sh"
        self.empty_script.write_text(EMPTY_SCRIPT, encoding="utf-8")
        self.empty_script.chmod(0o755)

    def build(self, name: str, *arguments: str) -> Path:
        """Compile *name*.c with additional compiler *arguments*; return the program. Raises `SystemExit` on failure."""
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise SystemExit("this benchmark compiles small C programs: install gcc")
        program = self._folder / name
        command = [compiler, "-O2", "-D_GNU_SOURCE", "-o", str(program), str(HERE / f"{name}.c")]
        if subprocess.run([*command, *arguments], check=False).returncode:
            raise SystemExit(f"{name}.c cannot be compiled")
        return program


def gsaas_client() -> list[str]:
    """Return compiler arguments: the parts of the launcher that make a client of the GSaaS API over HTTP.

    Raises `SystemExit` if the libraries are not there.
    """
    parts = sorted(
        str(path) for path in LAUNCHER.glob("*.c") if path.name not in ("main.c", "run.c", "tls.c")
    )
    return [f"-I{LAUNCHER}", *parts, *library_flags()]


def library_flags() -> list[str]:
    """Return the compiler arguments for the libraries of the launcher. Raises `SystemExit` without them."""
    command = ["pkg-config", "--cflags", "--libs", *LAUNCHER_LIBRARIES]
    if shutil.which(command[0]) is not None:
        found = subprocess.run(command, check=False, capture_output=True, text=True)
        if found.returncode == 0:
            return found.stdout.split()
    raise SystemExit(
        "this benchmark compiles a client in C: install pkg-config libevent-dev libjansson-dev nettle-dev"
    )


def cycles(program: Path, count: int, environment: Mapping[str, str]) -> list[float]:
    """Have *program* allocate and release one GPU *count* times; return the seconds of each cycle."""
    ran = subprocess.run(
        [str(program), str(count)], env=environment, check=True, stdout=subprocess.PIPE
    )
    seconds: list[float] = json.loads(ran.stdout)
    return seconds


def batch(
    program: Path, count: int, *command: str, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Run *count* copies of a command at once.

    Returns "seconds", until the last copy has ended, and "failed", how many had another exit status than 0.
    """
    ran = subprocess.run(
        [str(program), str(count), *command], env=environment, check=True, stdout=subprocess.PIPE
    )
    result: dict[str, Any] = json.loads(ran.stdout)
    return result
