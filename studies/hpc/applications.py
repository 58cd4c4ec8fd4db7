# SPDX-License-Identifier: Apache-2.0
"""The applications of the thesis, and its job sets (Tables 4.1 to 4.5)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

CORES = 12
"""Cores of each node: two Xeon E5-2620 v2."""


@dataclass(frozen=True, slots=True)
class SlurmApplication:
    """What one job of an application needs (Tables 4.1 and 4.3). It runs *seconds* seconds alone on local GPUs."""

    name: str
    processes: int
    cores: int
    """Of each process."""
    seconds: float
    memory_mb: int | None = None
    """MiB of GPU memory of each process; None if it uses no GPU."""
    same_node: bool = False
    """All its processes must be on one node (the long jobs of Table 4.4)."""

    @property
    def gpus(self) -> int:
        """The number of GPUs of a job: one for each process, or none."""
        return 0 if self.memory_mb is None else self.processes


_APPLICATIONS = (
    SlurmApplication("GPU-Blast", 1, 6, 21, 1599),
    SlurmApplication("LAMMPS", 4, 1, 15, 876),
    SlurmApplication("mCUDA-MEME", 4, 1, 165, 151),
    SlurmApplication("GROMACS", 2, 12, 167),
    SlurmApplication("BarraCUDA", 1, 1, 763, 3319),
    SlurmApplication("MUMmerGPU", 1, 1, 353, 2104),
    SlurmApplication("GPU-LIBSVM", 1, 1, 343, 145),
    SlurmApplication("NAMD", 4, 12, 241),
)
_BY_NAME = {application.name: application for application in _APPLICATIONS}
_LAMMPS, _MEME = _BY_NAME["LAMMPS"], _BY_NAME["mCUDA-MEME"]
LONG = 4.0
"""How many times as long the long variants run. This is an assumption: the thesis gives no number."""
_BY_NAME |= {
    "LAMMPS short": replace(_LAMMPS, name="LAMMPS short", processes=1),
    "LAMMPS long 2p": replace(
        _LAMMPS, name="LAMMPS long 2p", processes=2, seconds=15 * LONG, same_node=True
    ),
    "LAMMPS long 4p": replace(_LAMMPS, name="LAMMPS long 4p", seconds=15 * LONG, same_node=True),
    "mCUDA-MEME short": replace(_MEME, name="mCUDA-MEME short", processes=1),
    "mCUDA-MEME long 2p": replace(
        _MEME, name="mCUDA-MEME long 2p", processes=2, seconds=165 * LONG, same_node=True
    ),
    "mCUDA-MEME long 4p": replace(
        _MEME, name="mCUDA-MEME long 4p", seconds=165 * LONG, same_node=True
    ),
}

THROUGHPUT: Mapping[str, Mapping[str, int]] = {
    "Set 1": {"GPU-Blast": 112, "LAMMPS": 88, "mCUDA-MEME": 99, "GROMACS": 101},
    "Set 2": {"BarraCUDA": 112, "MUMmerGPU": 88, "GPU-LIBSVM": 99, "NAMD": 101},
    "Set 1+2": {
        "GPU-Blast": 57,
        "LAMMPS": 52,
        "mCUDA-MEME": 55,
        "GROMACS": 47,
        "BarraCUDA": 51,
        "MUMmerGPU": 52,
        "GPU-LIBSVM": 37,
        "NAMD": 49,
    },
}
"""Table 4.2: set of jobs -> application -> number of jobs."""

UPGRADE: Mapping[str, Mapping[str, int]] = {
    "WL1": {
        "GPU-Blast": 41,
        "LAMMPS short": 39,
        "LAMMPS long 2p": 20,
        "LAMMPS long 4p": 20,
        "mCUDA-MEME short": 39,
        "mCUDA-MEME long 2p": 20,
        "mCUDA-MEME long 4p": 20,
        "GROMACS": 40,
        "BarraCUDA": 40,
        "MUMmerGPU": 41,
        "GPU-LIBSVM": 40,
        "NAMD": 40,
    },
    "WL2": {
        "GPU-Blast": 48,
        "LAMMPS short": 46,
        "LAMMPS long 2p": 10,
        "LAMMPS long 4p": 10,
        "mCUDA-MEME short": 46,
        "mCUDA-MEME long 2p": 10,
        "mCUDA-MEME long 4p": 10,
        "GROMACS": 40,
        "BarraCUDA": 47,
        "MUMmerGPU": 47,
        "GPU-LIBSVM": 46,
        "NAMD": 40,
    },
}
"""Table 4.4, in the same form."""

POLICIES: Mapping[str, Mapping[str, int]] = {
    "Set 1": {"GPU-Blast": 132, "LAMMPS": 138, "mCUDA-MEME": 130},
    "Set 2": {"BarraCUDA": 142, "MUMmerGPU": 131, "GPU-LIBSVM": 127},
    "Set 1+2": {
        "GPU-Blast": 66,
        "LAMMPS": 71,
        "mCUDA-MEME": 68,
        "BarraCUDA": 62,
        "MUMmerGPU": 59,
        "GPU-LIBSVM": 74,
    },
}
"""Table 4.5, in the same form."""


def job_set(counts: Mapping[str, int], seed: int) -> list[SlurmApplication]:
    """Return the jobs of one set, which are all submitted at time 0, in the random order of *seed*."""
    jobs = [_BY_NAME[name] for name, count in counts.items() for _ in range(count)]
    random.Random(seed).shuffle(jobs)
    return jobs
