# SPDX-License-Identifier: Apache-2.0
"""What `ggml_matrices.py` does, for a VM that has Python and ggml's client libraries, and nothing else.

It multiplies matrices on all cGPUs of its lease and prints a line of JSON for each: how many products there were, and
how many of them were what the VM has computed itself. The elements are small integers, so a right product is exact.
"""

# ruff: noqa: T201, S311 - printing is what it is for, and nothing here is secret

import array
import ctypes
import json
import os
import random

SIZE, ROUNDS = 24, 5
F32 = 0


class Parameters(ctypes.Structure):
    _fields_ = (
        ("mem_size", ctypes.c_size_t),
        ("mem_buffer", ctypes.c_void_p),
        ("no_alloc", ctypes.c_bool),
    )


ggml = ctypes.CDLL("libggml-rpc.so")
pointer, number = ctypes.c_void_p, ctypes.c_int64
for name, result, *arguments in (
    ("init", pointer, Parameters),
    ("new_tensor_2d", pointer, pointer, ctypes.c_int, number, number),
    ("mul_mat", pointer, pointer, pointer, pointer),
    ("new_graph", pointer, pointer),
    ("build_forward_expand", None, pointer, pointer),
    ("backend_rpc_init", pointer, ctypes.c_char_p, ctypes.c_uint32),
    ("backend_alloc_ctx_tensors", pointer, pointer, pointer),
    ("backend_tensor_set", None, pointer, pointer, ctypes.c_size_t, ctypes.c_size_t),
    ("backend_tensor_get", None, pointer, pointer, ctypes.c_size_t, ctypes.c_size_t),
    ("backend_graph_compute", ctypes.c_int, pointer, pointer),
):
    function = getattr(ggml, f"ggml_{name}")
    function.restype, function.argtypes = result, arguments


class Device:
    """A cGPU, and the product of two matrices on it."""

    def __init__(self, address):
        self.backend = ggml.ggml_backend_rpc_init(address.encode(), 0)
        context = ggml.ggml_init(Parameters(1 << 20, None, True))
        self.a, self.b = (ggml.ggml_new_tensor_2d(context, F32, SIZE, SIZE) for _ in range(2))
        self.c = ggml.ggml_mul_mat(context, self.a, self.b)
        self.graph = ggml.ggml_new_graph(context)
        ggml.ggml_build_forward_expand(self.graph, self.c)
        assert ggml.ggml_backend_alloc_ctx_tensors(context, self.backend)

    def product(self, a, b):
        size = 4 * SIZE * SIZE
        for tensor, matrix in ((self.a, a), (self.b, b)):
            ggml.ggml_backend_tensor_set(tensor, matrix.buffer_info()[0], 0, size)
        ggml.ggml_backend_graph_compute(self.backend, self.graph)
        c = array.array("f", bytes(size))
        ggml.ggml_backend_tensor_get(self.c, c.buffer_info()[0], 0, size)
        return c


def matrix():
    return array.array("f", (random.randrange(16) for _ in range(SIZE * SIZE)))


def expected(a, b):
    """Return b times the transposed a, which is what ggml computes."""
    rows = range(0, SIZE * SIZE, SIZE)
    return array.array(
        "f", (sum(b[i + k] * a[j + k] for k in range(SIZE)) for i in rows for j in rows)
    )


addresses = os.environ["LLAMA_ARG_RPC"].split(",")
devices = [Device(address) for address in addresses]
right = [0 for _ in devices]
for _ in range(ROUNDS):
    for each, device in enumerate(devices):
        a, b = matrix(), matrix()
        right[each] += device.product(a, b) == expected(a, b)
for address, count in zip(addresses, right, strict=True):
    print(json.dumps({"address": address, "products": ROUNDS, "right": count}), flush=True)
