"""What the generic request is measured on: GSaaS and Slurm with so many GPUs, and small programs that ask them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LAUNCHER = HERE.parents[1] / "launcher"
SPEAKS_TO_GSAAS = (
    f"-I{LAUNCHER}",
    *(str(LAUNCHER / f"{part}.c") for part in ("credentials", "http", "json", "text")),
)
"""For the compiler: the parts of the launcher that a client of the API is made of."""
EMPTY_SCRIPT = "#!/bin/bash\n"


class Tools:
    """The programs of this folder, compiled into another one, beside an empty script."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.empty = folder / "empty.sh"
        self.empty.write_text(EMPTY_SCRIPT, encoding="utf-8")
        self.empty.chmod(0o755)

    def build(self, name: str, *more: str) -> Path:
        """Compile *name*.c, with *more* for the compiler; `SystemExit` if that fails."""
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise SystemExit("this benchmark compiles small C programs: install gcc")
        program = self._folder / name
        command = [compiler, "-O2", "-D_GNU_SOURCE", "-o", str(program), str(HERE / f"{name}.c")]
        if subprocess.run([*command, *more], check=False).returncode:
            raise SystemExit(f"{name}.c cannot be compiled")
        return program


def cycles(program: Path, count: int, environment: Mapping[str, str]) -> list[float]:
    """Have *program* allocate one GPU and give it back *count* times; return the seconds that each took."""
    ran = subprocess.run(
        [str(program), str(count)], env=environment, check=True, stdout=subprocess.PIPE
    )
    return json.loads(ran.stdout)


def batch(program: Path, count: int, *command: str, **more: Any) -> dict[str, Any]:
    """Run *count* copies of a command at once; return the seconds until the last has ended, and how many failed."""
    ran = subprocess.run(
        [str(program), str(count), *command], check=True, stdout=subprocess.PIPE, **more
    )
    return json.loads(ran.stdout)
