# SPDX-License-Identifier: Apache-2.0
"""Every formula of the papers, computed by hand."""

from __future__ import annotations

import pytest

from studies.batch import models
from studies.batch.models import GB, NODE_2014, NODE_2016, RCUDA_5, RCUDA_2014, Work

WORK = Work(1000, calls=1e6, gpu_bytes=7 * GB, connections=1e4, net_bytes=3.5 * GB)


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        # 10^4 connections of 1.2 us, and 3.5 GB over 7 GB/s shared by two
        (models.network(WORK, NODE_2016, 2), 0.012 + 1.0),
        # 10^6 calls of 10 us, 7 GB at 7 GB/s
        (models.local_gpu(WORK, NODE_2016), 10 + 1),
        # 10^6 calls of 50.62 + 1.2 us, 7 GB at half of 7 GB/s with 3 % more
        (models.remote_gpu(WORK, NODE_2016, RCUDA_5, 2), 51.82 + 2.06),
        # 2014: 100 calls of 0.99 ms, 1.71 GB between GPUs at 171 GB/s, 7 GB at 7 GB/s
        (
            models.local_gpu(Work(0, calls=100, gpu_bytes=7 * GB, peer_bytes=1.71 * GB), NODE_2014),
            0.099 + 0.01 + 1,
        ),
        # what went from GPU to GPU goes over the network as well
        (
            models.remote_gpu(
                Work(0, calls=100, gpu_bytes=3 * GB, peer_bytes=4 * GB), NODE_2014, RCUDA_2014, 1
            ),
            0.347 + 100 * 1.2e-6 + 1.09,
        ),
        (models.record(1e6), 0.2825 + 0.0003437),
        (models.replay(1e6), 1.031 + 1.243),
        # large: 0.057 s and 1 / 4.78 s for each GB
        (models.memsync(4.78 * GB), 0.27246 + 1),
        # small: never less than 1 / 47.21 ms
        (models.memsync(1000), 1000 * 0.057e-9 + 1 / 47.21e3),
        (models.memsync(0), 0),
        (models.mhelper(WORK), 0.687 * 7 + 9.983 + 0.002934),
    ],
)
def test_formula(what: float, expected: float):
    assert what == pytest.approx(expected, rel=1e-12)
