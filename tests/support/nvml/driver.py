# SPDX-License-Identifier: Apache-2.0
"""A fake NVIDIA driver: a real shared library, compiled here, that says what a file says."""

from __future__ import annotations

import ctypes
import functools
import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
NAME = "libnvidia-ml.so.1"

GPU_IS_LOST = 15
UNKNOWN = 999
DRIVER_NOT_LOADED = 9
VERSION_MISMATCH = 18


@functools.cache
def build(folder: Path) -> Path:
    """Compile the library into *folder* and return its path."""
    library = folder / NAME
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-Wl,-soname,{NAME}"]
        + ["-o", library, SOURCE],
        check=True,
    )
    return library


@functools.cache
def preload(library: Path) -> ctypes.CDLL:
    """Have this process take *library* for NVIDIA's: whoever loads that name is given it."""
    return ctypes.CDLL(str(library))


class FakeDriver:
    """What the library says, in a file that may change at any time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.gpus: dict[int, dict[str, object]] = {}
        self.instances: dict[tuple[int, int], dict[str, object]] = {}
        self.processes: list[tuple[int, dict[str, object]]] = []
        self.xids: list[tuple[int, dict[str, object]]] = []
        self.error = 0
        self.count: int | None = None
        self.say()

    def have(self, count: int) -> None:
        """Have so many GPUs, all alike."""
        for index in range(count):
            self.gpu(index)

    def gpu(self, index: int, **facts: object) -> None:
        """Say *facts* of a GPU, besides what was said before.

        Bytes that are no UTF-8 are those that `bytes.decode(errors="surrogateescape")` makes of them.
        """
        usual = {
            "uuid": uuid(index),
            "name": "NVIDIA A100-PCIE-40GB",
            "memory": 40960,
            "used": 1024,
            "util": 50,
            "temp": 40,
            "power": 250500,
            "cc": "8.0",
            "mig": 0,
        }
        self.gpus[index] = {**usual, **self.gpus.get(index, {}), **facts}
        self.say()

    def lose(self, index: int, error: int = GPU_IS_LOST) -> None:
        self.gpu(index, error=error)

    def find_again(self, index: int) -> None:
        self.gpu(index, error=0)

    def unplug(self, index: int) -> None:
        """Take a GPU out; those after it move up in the driver's list."""
        left = [facts for place, facts in sorted(self.gpus.items()) if place != index]
        self.gpus = dict(enumerate(left))
        self.say()

    def instance(self, index: int, number: int, **facts: object) -> None:
        """Put the GPU in MIG mode, and divide it further."""
        self.gpu(index, mig=1)
        usual = {"uuid": f"MIG-{index:04x}-{number}", "memory": 4864, "instance": 7 + number}
        self.instances[index, number] = {**usual, "name": "NVIDIA A100 MIG 1g.5gb", **facts}
        self.say()

    def process(self, index: int, **facts: object) -> None:
        self.processes.append((index, facts))
        self.say()

    def report(self, index: int, number: int, **facts: object) -> None:
        """Report an XID error."""
        self.xids.append((index, {"number": number, **facts}))
        self.say()

    def fail(self, error: int) -> None:
        """Fail whatever is asked; 0 puts an end to that."""
        self.error = error
        self.say()

    def claim(self, count: int) -> None:
        """Say that so many GPUs are there, whatever is said of them."""
        self.count = count
        self.say()

    def say(self) -> None:
        count = {} if self.count is None else {"count": self.count}
        lines = [_line("driver", {"error": self.error, **count})]
        lines += [_line(f"gpu {index}", facts) for index, facts in self.gpus.items()]
        lines += [_line(f"mig {i} {n}", facts) for (i, n), facts in self.instances.items()]
        lines += [_line(f"process {index}", facts) for index, facts in self.processes]
        lines += [_line(f"xid {index}", facts) for index, facts in self.xids]
        fresh = self.path.with_suffix(".new")
        text = "".join(f"{line}\n" for line in lines)
        fresh.write_bytes(text.encode(errors="surrogateescape"))
        fresh.replace(self.path)


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-9d52-4d1b-8a7e-0d4f2b9e6a10"


def _line(beginning: str, facts: Mapping[str, object]) -> str:
    return " ".join([beginning, *(f"{key}={value}" for key, value in facts.items())])
