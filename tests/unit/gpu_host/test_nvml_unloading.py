# SPDX-License-Identifier: Apache-2.0
"""The private names with which gsaas.gpu_host.sources.nvml unloads NVML. pynvml and ctypes have no public ones."""

from __future__ import annotations

import _ctypes
import ctypes

import pynvml


def test_pynvml_keeps_the_library_and_its_functions_where_they_are_removed_from() -> None:
    assert hasattr(pynvml, "nvmlLib")
    assert isinstance(pynvml._nvmlGetFunctionPointer_cache, dict)


def test_a_library_of_ctypes_can_be_closed() -> None:
    assert isinstance(ctypes.CDLL(None)._handle, int)
    assert callable(_ctypes.dlclose)
