# SPDX-License-Identifier: Apache-2.0
"""What `gsaas.standalone.demo.matrices` does, with ggml: it multiplies matrices on all cGPUs of its lease at once.

    ggml_matrices.py [--rounds=N | --endless | --allocate]

ggml ends a process that loses its server. So each cGPU has a process of its own, and the first one tells how that
ended.
"""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing.connection
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import ggml
import numpy

SIZE = 64
PAUSE = 0.01
TOLERANCE = 1e-3
PIECE_MB = 32
MOST_MB = 8192
RPC = ctypes.CDLL(
    str(Path(ggml.__file__).with_name("lib") / "libggml-rpc.so"), mode=ctypes.RTLD_GLOBAL
)
RPC.ggml_backend_rpc_init.restype = ctypes.c_void_p
RPC.ggml_backend_rpc_init.argtypes = [ctypes.c_char_p, ctypes.c_uint32]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--endless", action="store_true")
    parser.add_argument("--allocate", action="store_true")
    options = parser.parse_args()
    addresses = os.environ["LLAMA_ARG_RPC"].split(",")
    if options.allocate:
        print(json.dumps(allocate(addresses[0])), flush=True)
        return 0
    context = multiprocessing.get_context("fork")
    began = context.SimpleQueue()
    counts = [(context.Value("q", 0), context.Value("d", 0.0)) for _ in addresses]
    rounds = None if options.endless else options.rounds
    workers = [
        context.Process(target=multiply, args=(number, address, rounds, began, *counts[number]))
        for number, address in enumerate(addresses)
    ]
    for worker in workers:
        worker.start()
    if options.endless:
        for _ in workers:
            began.get()
        print("computing", flush=True)
    wrong = False
    left = dict(enumerate(workers))
    while left:
        multiprocessing.connection.wait([each.sentinel for each in left.values()])
        at = time.monotonic()
        for number, worker in [each for each in left.items() if each[1].exitcode is not None]:
            done, largest = counts[number]
            ended: dict[str, Any] = {}
            if worker.exitcode:
                ended = {"error": signal.Signals(-worker.exitcode).name, "at": at}
            wrong |= bool(ended) or largest.value > TOLERANCE
            result = {"cgpu": number, "products": done.value, "largest_error": largest.value}
            print(json.dumps({**result, **ended}), flush=True)
            del left[number]
    return int(wrong)


def multiply(
    number: int, address: str, rounds: int | None, began: Any, done: Any, largest: Any
) -> None:
    random = numpy.random.default_rng(number)
    device = RPC.ggml_backend_rpc_init(address.encode(), 0)
    context = ggml.ggml_init(
        ggml.ggml_init_params(mem_size=1 << 20, mem_buffer=None, no_alloc=True)
    )
    a, b = (ggml.ggml_new_tensor_2d(context, ggml.GGML_TYPE_F32, SIZE, SIZE) for _ in range(2))
    c = ggml.ggml_mul_mat(context, a, b)
    graph = ggml.ggml_new_graph(context)
    ggml.ggml_build_forward_expand(graph, c)
    ggml.ggml_backend_alloc_ctx_tensors(context, device)
    product = numpy.empty((SIZE, SIZE), numpy.float32)
    while rounds is None or done.value < rounds:
        # Whole numbers, with which the tensor cores of a GPU compute exactly, too.
        first, second = (
            random.integers(-8, 9, (SIZE, SIZE)).astype(numpy.float32) for _ in range(2)
        )
        for tensor, value in ((a, first), (b, second)):
            ggml.ggml_backend_tensor_set(tensor, pointer(value), 0, value.nbytes)
        ggml.ggml_backend_graph_compute(device, graph)
        ggml.ggml_backend_tensor_get(c, pointer(product), 0, product.nbytes)
        largest.value = max(largest.value, float(abs(product - second @ first.T).max()))
        done.value += 1
        if done.value == 1:
            began.put(True)
        if rounds is None:
            time.sleep(PAUSE)
    os._exit(0)


def allocate(address: str) -> dict[str, Any]:
    """Return how many MiB could be taken, and why no more."""
    device = RPC.ggml_backend_rpc_init(address.encode(), 0)
    taken = 0
    while taken < MOST_MB:
        context = ggml.ggml_init(
            ggml.ggml_init_params(mem_size=1 << 20, mem_buffer=None, no_alloc=True)
        )
        ggml.ggml_new_tensor_1d(context, ggml.GGML_TYPE_I8, PIECE_MB << 20)
        if not ggml.ggml_backend_alloc_ctx_tensors(context, device):
            return {"allocated_mb": taken, "error": "it could not be allocated"}
        taken += PIECE_MB
    return {"allocated_mb": taken, "error": None}


def pointer(array: Any) -> Any:
    return array.ctypes.data_as(ctypes.c_void_p)


if __name__ == "__main__":
    sys.exit(main())
