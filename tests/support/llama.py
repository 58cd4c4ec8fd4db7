# SPDX-License-Identifier: Apache-2.0
"""llama.cpp with its RPC, ready built, below build/: the libraries in the package llama-cpp-py-sync, and gguf.

They need glibc 2.38. Where the system's is older, as on Debian 12, they run with the C library of Debian 13, which
mmdebstrap unpacks there; the programs of the system run with it, too.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests import fresh
from tests.support.shipped_monitor import PACKAGES

REPOSITORY = Path(__file__).parents[2]
RELEASE = "0.11739"
"""Of llama-cpp-py-sync; it has llama.cpp of October 2026."""
GGUF = "0.19.0"
FOLDER = REPOSITORY / "build" / f"llama-{RELEASE}"
PROGRAMS = Path(__file__).parent / "compute"
GLIBC = (2, 38)
LIBRARIES = ("libc6", "libstdc++6", "libgomp1", "libgcc-s1")
NAMES = ("ggml", "ggml-base", "ggml-cpu", "ggml-rpc")


class NotAvailable(Exception):
    """It cannot be had here; the text says why."""


@dataclass(frozen=True)
class Llama:
    """How programs of llama.cpp are run."""

    python: tuple[str, ...]
    """The command that is Python, with a C library that is new enough."""
    environment: dict[str, str]
    libraries: Path
    """The folder of ggml's libraries."""

    def command(self, program: str, *words: str | Path) -> list[str]:
        """Return how to run one of `PROGRAMS`."""
        return [*self.python, str(PROGRAMS / program), *map(str, words)]


def available() -> Llama:
    """Return llama.cpp, which takes half a minute the first time; raises `NotAvailable`."""
    FOLDER.parent.mkdir(exist_ok=True)
    with FOLDER.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not FOLDER.exists():
            draft = FOLDER.with_suffix(".new")
            shutil.rmtree(draft, ignore_errors=True)
            try:
                _build(draft)
            except (OSError, subprocess.CalledProcessError) as error:
                raise NotAvailable(f"llama.cpp cannot be had: {error}") from None
            draft.rename(FOLDER)
    python = (os.path.realpath(sys.executable),)
    if not _is_new_enough():
        folder = FOLDER / "root/usr/lib/x86_64-linux-gnu"
        loader = (str(folder / "ld-linux-x86-64.so.2"), "--library-path", str(folder))
        python = (*loader, *python)
    environment = {"PYTHONPATH": f"{FOLDER}/python:{PACKAGES}", "GGML_NO_BACKTRACE": "1"}
    return Llama(python, environment, FOLDER / "python/llama_cpp_py_sync")


def _build(folder: Path) -> None:
    if platform.machine() != "x86_64":
        raise NotAvailable("llama.cpp is built for x86-64 only")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
            *("--disable-pip-version-check", "--root-user-action=ignore"),
            *("--target", folder / "python", f"llama-cpp-py-sync=={RELEASE}", f"gguf=={GGUF}"),
        ],
        check=True,
    )
    for name in NAMES:  # as the server looks for them
        (folder / f"python/llama_cpp_py_sync/lib{name}.so").symlink_to(f"lib{name}.so.0")
    if _is_new_enough():
        return
    sources = folder / "apt.sources"
    sources.write_text(fresh.sources_of("trixie"))
    only = f"--include={','.join(LIBRARIES)}"
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=extract", only, "trixie", folder / "root", sources],
        check=True,
    )


def _is_new_enough() -> bool:
    _, version = platform.libc_ver()
    return tuple(map(int, version.split("."))) >= GLIBC
