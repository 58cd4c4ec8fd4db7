# SPDX-License-Identifier: Apache-2.0
"""CUDA_VISIBLE_DEVICES means to a monitor what it means to CUDA."""

from __future__ import annotations

import pytest

from gsaas.gpu_host.sources.cuda_visible_devices import CudaDevice, select_visible

GPUS = [
    CudaDevice(0, "GPU-aa11"),
    CudaDevice(1, "GPU-aa22"),
    CudaDevice(2, "MIG-c1", "GPU-cc33"),
    CudaDevice(2, "MIG-c2", "GPU-cc33"),
]
ALL = {"GPU-aa11", "GPU-aa22", "MIG-c1", "MIG-c2"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(None, ALL, id="not set: all"),
        pytest.param("", set(), id="empty: none"),
        pytest.param("1", {"GPU-aa22"}, id="a number"),
        pytest.param(" 1 , 0 ", {"GPU-aa22", "GPU-aa11"}, id="numbers in any order"),
        pytest.param("2", {"MIG-c1", "MIG-c2"}, id="a GPU in MIG mode: its instances"),
        pytest.param("GPU-aa11", {"GPU-aa11"}, id="a UUID"),
        pytest.param("GPU-aa2", {"GPU-aa22"}, id="the beginning of one UUID"),
        pytest.param("GPU-aa", set(), id="the beginning of two"),
        pytest.param("GPU-c", {"MIG-c1", "MIG-c2"}, id="the UUID of a GPU in MIG mode"),
        pytest.param("MIG-c2", {"MIG-c2"}, id="one instance"),
        pytest.param("MIG-c2,0", {"MIG-c2", "GPU-aa11"}, id="an instance and a number"),
        pytest.param("-1", set(), id="what is no number"),
        pytest.param("0,7,1", {"GPU-aa11"}, id="what follows a number that is none is ignored"),
        pytest.param("0,GPU-zz,1", {"GPU-aa11"}, id="what follows a UUID that is none, too"),
        pytest.param("0,nonsense,1", {"GPU-aa11"}, id="what follows nonsense, too"),
        pytest.param("0,0,1", {"GPU-aa11"}, id="what follows a repetition, too"),
        pytest.param("2,MIG-c1,0", {"MIG-c1", "MIG-c2"}, id="a part of what is there is one"),
        pytest.param("NoDevFiles", set(), id="what container runtimes say for none"),
        pytest.param("²", set(), id="a digit that is no number"),
    ],
)
def test_what_is_visible(value, expected):
    assert select_visible(value, GPUS) == expected


def test_without_gpus_nothing_is_visible():
    assert select_visible(None, []) == select_visible("0", []) == set()
