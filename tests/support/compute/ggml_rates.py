# SPDX-License-Identifier: Apache-2.0
"""How fast a server of ggml's RPC answers: `ggml_rates.py HOST:PORT CALLS COPIES` prints a line of JSON.

A call sends a matrix of 16 x 16, has a product computed, and fetches it. A copy is of 32 MiB, to the device or back.
"""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import ggml
import numpy

SIZE = 16
COPY_MB = 32
RPC = ctypes.CDLL(
    str(Path(ggml.__file__).with_name("lib") / "libggml-rpc.so"), mode=ctypes.RTLD_GLOBAL
)
RPC.ggml_backend_rpc_init.restype = ctypes.c_void_p
RPC.ggml_backend_rpc_init.argtypes = [ctypes.c_char_p, ctypes.c_uint32]


def main(address: str, calls: int, copies: int) -> None:
    device = RPC.ggml_backend_rpc_init(address.encode(), 0)
    context = ggml.ggml_init(
        ggml.ggml_init_params(mem_size=1 << 20, mem_buffer=None, no_alloc=True)
    )
    a, b = (ggml.ggml_new_tensor_2d(context, ggml.GGML_TYPE_F32, SIZE, SIZE) for _ in range(2))
    large = ggml.ggml_new_tensor_1d(context, ggml.GGML_TYPE_I8, COPY_MB << 20)
    c = ggml.ggml_mul_mat(context, a, b)
    graph = ggml.ggml_new_graph(context)
    ggml.ggml_build_forward_expand(graph, c)
    assert ggml.ggml_backend_alloc_ctx_tensors(context, device)
    matrix = numpy.ones((SIZE, SIZE), numpy.float32)
    copy(ggml.ggml_backend_tensor_set, b, matrix)

    def call() -> None:
        copy(ggml.ggml_backend_tensor_set, a, matrix)
        ggml.ggml_backend_graph_compute(device, graph)
        copy(ggml.ggml_backend_tensor_get, c, matrix)
        assert matrix[0, 0] == SIZE
        matrix.fill(1)

    call()
    times = [timed(call) for _ in range(calls)]
    piece = numpy.ones(COPY_MB << 20, numpy.int8)
    last = numpy.empty(1, numpy.int8)

    def up() -> None:
        copy(ggml.ggml_backend_tensor_set, large, piece)
        copy(ggml.ggml_backend_tensor_get, large, last)  # when it is there

    ups = [timed(up) for _ in range(copies)]
    downs = [timed(lambda: copy(ggml.ggml_backend_tensor_get, large, piece)) for _ in range(copies)]
    found = {"calls_per_s": calls / sum(times), "call_us": statistics.median(times) * 1e6}
    if copies:
        found["up_mb_s"] = copies * COPY_MB / sum(ups)
        found["down_mb_s"] = copies * COPY_MB / sum(downs)
    print(json.dumps(found), flush=True)


def copy(function: Any, tensor: Any, array: Any) -> None:
    function(tensor, array.ctypes.data_as(ctypes.c_void_p), 0, array.nbytes)


def timed(function: Any) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
