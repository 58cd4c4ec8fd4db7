# SPDX-License-Identifier: Apache-2.0
"""Builds the fake CUDA driver, with or without all functions of a real one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_cuda.c")
FIRST, SECOND = (f"GPU-00000000-0000-4000-8000-00000000000{number}" for number in range(2))
NAME = "libcuda.so.1"


def build(folder: Path, headers: Path | None = None) -> Path:
    """Make the library in *folder*, and return the folder.

    With *headers*, the folder with cuda.h, it also has every function that is declared there; those that are not
    faked return CUDA_ERROR_NOT_SUPPORTED. Middlewares do not start without them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sources = [SOURCE]
    if headers is not None:
        faked = set(re.findall(r"^result (cu\w+)\(", SOURCE.read_text(encoding="utf-8"), re.M))
        declared = set()
        for name in ("cuda.h", "cudaProfiler.h"):
            text = (headers / name).read_text(encoding="utf-8", errors="replace")
            declared |= set(re.findall(r"\bcu[A-Z]\w*", text))
        missing = sorted(name for name in declared - faked if not name.endswith("_st"))
        stubs = folder / "stubs.c"
        stubs.write_text("".join(f"int {name}(void) {{ return 801; }}\n" for name in missing))
        sources.append(stubs)
    command = ["cc", "-shared", "-fPIC", "-O2", "-w", f"-Wl,-soname,{NAME}", *sources, "-ldl"]
    subprocess.run([*command, "-o", folder / NAME], check=True)
    return folder
