# SPDX-License-Identifier: Apache-2.0
"""ggml's client and server libraries, built once below build/: they are not in a package of Debian 12.

They are built for processors of 2003 (x86-64), which QEMU emulates, and with ggml's RPC.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
RELEASE = "0.0.45"
"""Of ggml-python."""
FOLDER = REPOSITORY / "build" / f"ggml-{RELEASE}"
"""To be named in PYTHONPATH."""
PROGRAM = Path(__file__).parent / "compute/ggml_matrices.py"
"""A program that computes with it."""
BARE = Path(__file__).parent / "compute/ggml_bare.py"
"""One that needs no package of Python."""
RATES = Path(__file__).parent / "compute/ggml_rates.py"
"""One that measures how fast a server answers."""
WITHOUT = ("NATIVE", "AVX", "AVX2", "FMA", "F16C", "BMI2", "SSE42")
SWITCHES = " ".join(["-DGGML_RPC=ON", *(f"-DGGML_{name}=OFF" for name in WITHOUT)])


def built() -> Path:
    """Return `FOLDER`; build it if it is not there, which takes a minute or two."""
    FOLDER.parent.mkdir(exist_ok=True)
    with FOLDER.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not FOLDER.exists():
            draft = FOLDER.with_suffix(".new")
            shutil.rmtree(draft, ignore_errors=True)
            subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
                    *("--disable-pip-version-check", "--root-user-action=ignore"),
                    *("--target", draft, f"ggml-python=={RELEASE}"),
                ],
                env={**os.environ, "CMAKE_ARGS": SWITCHES},
                check=True,
            )
            draft.rename(FOLDER)
    return FOLDER


if __name__ == "__main__":
    built()
