# SPDX-License-Identifier: Apache-2.0
"""The program of a tenant that computes through ggml's RPC, with the libraries of a client of it alone."""

from __future__ import annotations

import array
import ctypes
import os
import sys
from typing import Any

from gsaas.prove.clients import session
from gsaas.prove.clients.session import SIDE, RefusedError

F32 = 0
"""GGML_TYPE_F32."""
PATTERN = 1


class _Parameters(ctypes.Structure):
    """ggml_init_params."""

    _fields_ = (
        ("mem_size", ctypes.c_size_t),
        ("mem_buffer", ctypes.c_void_p),
        ("no_alloc", ctypes.c_bool),
    )


class Session(session.Session):
    """Where the daemon at *address* ends, ggml ends this process (SIGABRT). Raises `OSError` without libraries."""

    def __init__(self, address: str) -> None:
        self._base = _library("libggml-base.so")
        rpc = _library("libggml-rpc.so")
        # A daemon that is not there is told only when it is first used.
        self._backend = _function(rpc, "ggml_backend_rpc_init")(
            address.encode(), ctypes.c_uint32(0)
        )
        if not self._backend:
            raise OSError(f"nothing answers at {address}")
        new = self._call("ggml_init", _Parameters(1 << 20, None, True))
        self._inputs = [self._call("ggml_new_tensor_2d", new, F32, *_sides()) for _ in range(2)]
        # The product of ggml has the dot products of rows with rows, and their columns first.
        self._product = self._call("ggml_mul_mat", new, *self._inputs)
        self._graph = self._call("ggml_new_graph", new)
        self._call("ggml_build_forward_expand", self._graph, self._product)
        if not self._call("ggml_backend_alloc_ctx_tensors", new, self._backend):
            raise OSError(f"the daemon at {address} has no memory for a program")

    def allocate(self, mib: int) -> None:
        size = ctypes.c_size_t(mib << 20)
        buffer = self._call("ggml_backend_alloc_buffer", self._backend, size)
        if not buffer:
            raise RefusedError("it could not be allocated")
        self._call("ggml_backend_buffer_clear", buffer, ctypes.c_uint8(PATTERN))

    def multiply(self, left: array.array[float], right: array.array[float]) -> array.array[float]:
        turned = array.array("f")
        for column in range(SIDE):
            turned += right[column::SIDE]
        for tensor, values in zip(self._inputs, (turned, left), strict=True):
            self._copy("ggml_backend_tensor_set", tensor, values)
        self._call("ggml_backend_graph_compute", self._backend, self._graph)
        product = array.array("f", bytes(4 * SIDE * SIDE))
        self._copy("ggml_backend_tensor_get", self._product, product)
        return product

    def _copy(self, name: str, tensor: ctypes.c_void_p, values: array.array[float]) -> None:
        address, count = values.buffer_info()
        size = ctypes.c_size_t(count * values.itemsize)
        self._call(name, tensor, ctypes.c_void_p(address), ctypes.c_size_t(0), size)

    def _call(self, name: str, *arguments: object) -> ctypes.c_void_p:
        found: ctypes.c_void_p = _function(self._base, name)(*arguments)
        return found


def _sides() -> tuple[ctypes.c_int64, ctypes.c_int64]:
    return ctypes.c_int64(SIDE), ctypes.c_int64(SIDE)


def _library(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)


def _function(library: ctypes.CDLL, name: str) -> Any:
    """Return a function of a library; most of ggml's return pointers, which are given to its other functions."""
    function = getattr(library, name)
    function.restype = ctypes.c_void_p
    return lambda *arguments: ctypes.c_void_p(function(*arguments))


if __name__ == "__main__":
    # Or it starts a debugger when it loses its daemon.
    os.environ["GGML_NO_BACKTRACE"] = "1"
    sys.exit(session.main(lambda: Session(os.environ["LLAMA_ARG_RPC"].partition(",")[0])))
