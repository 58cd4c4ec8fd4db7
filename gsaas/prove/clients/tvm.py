# SPDX-License-Identifier: Apache-2.0
"""The program of a tenant that computes through Apache TVM's RPC."""

from __future__ import annotations

import array
import os
import tempfile
from pathlib import Path
from typing import Any

from gsaas.prove.clients import session
from gsaas.prove.clients.session import SIDE, RefusedError


class Session(session.Session):
    """Raises `OSError` without TVM, or without a daemon at *address*."""

    def __init__(self, address: str) -> None:
        try:
            import numpy
            import tvm
            from tvm import rpc
        except ImportError as error:
            raise OSError(str(error)) from None
        self._numpy, self._tvm = numpy, tvm
        host, _, port = address.rpartition(":")
        try:
            remote = rpc.connect(host, int(port), session_timeout=0)
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "product.ll")
                _product(tvm).write_to_file(str(file), "ll")
                remote.upload(str(file))
            self._function = remote.load_module(file.name)["main"]
        except Exception as error:  # noqa: BLE001 - what it raises is its own affair
            raise OSError(_reason(error)) from None
        self._device = remote.cpu(0)
        self._taken: list[Any] = []

    def allocate(self, mib: int) -> None:
        try:
            # Not written to: a copy takes long, and what limits the daemon counts what it has reserved.
            self._taken.append(self._tvm.runtime.empty((mib << 20,), "uint8", self._device))
        except Exception as error:  # noqa: BLE001
            raise RefusedError(_reason(error)) from None

    def multiply(self, left: array.array[float], right: array.array[float]) -> array.array[float]:
        shape = (SIDE, SIDE)
        try:
            inputs = [
                self._tvm.runtime.tensor(
                    self._numpy.frombuffer(values, "float32").reshape(shape), self._device
                )
                for values in (left, right)
            ]
            product = self._tvm.runtime.empty(shape, "float32", self._device)
            self._function(*inputs, product)
            return array.array("f", product.numpy().tobytes())
        except Exception as error:  # noqa: BLE001
            raise RefusedError(_reason(error)) from None


def _product(tvm: Any) -> Any:
    """Return a function that multiplies two matrices, compiled."""
    from tvm import te

    left, right = (te.placeholder((SIDE, SIDE), name=name) for name in ("left", "right"))
    k = te.reduce_axis((0, SIDE), name="k")
    product = te.compute(
        (SIDE, SIDE), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name="product"
    )
    module = tvm.IRModule({"main": te.create_prim_func([left, right, product])})
    return tvm.compile(module, target="llvm").mod


def _reason(error: Exception) -> str:
    """Return the last line of an error; TVM's have many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


if __name__ == "__main__":
    # Without TVM's own end, which waits for a daemon that may be gone.
    os._exit(session.main(lambda: Session(os.environ["TVM_RPC_SERVER_0"])))
