# SPDX-License-Identifier: Apache-2.0
"""A program of a tenant that computes: it multiplies matrices on all cGPUs of its lease at once, through TVM's RPC.

    matrices.py [--rounds=N]      multiply N times on each cGPU, and compare each product with this machine's own
    matrices.py --endless         the same until the cGPUs are taken away; it prints `computing` when all have begun
    matrices.py --allocate        take memory of the first cGPU, until it has no more

It prints a line of JSON for each cGPU. It is run as a file in a VM, which has TVM and NumPy, but no GSaaS.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy
import tvm
from tvm import rpc, te

SIZE = 64
"""Rows and columns of the matrices."""
PAUSE = 0.01
"""Seconds between two products of a program without an end, so that others compute meanwhile."""
TOLERANCE = 1e-3
PIECE_MB = 32
"""MiB that are allocated at once."""
MOST_MB = 8192
"""MiB that are allocated in all; no cGPU of the demonstration has so many."""


def main() -> int:
    """Run what the command line says; return 1 if a product was wrong or could not be computed."""
    parser = argparse.ArgumentParser(description="Multiply matrices on the cGPUs of this lease.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--endless", action="store_true")
    parser.add_argument("--allocate", action="store_true")
    options = parser.parse_args()
    addresses = servers()
    if not addresses:
        sys.exit(
            "there is no TVM_RPC_SERVER_0: run it with the environment of a lease, see gsaas env"
        )
    if options.allocate:
        say(json.dumps(allocate(addresses[0])))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        function = Path(folder, "product.ll")
        product().write_to_file(str(function), "ll")
        return multiply_on_all(addresses, function, None if options.endless else options.rounds)


def servers() -> list[str]:
    """Return the addresses of the lease's cGPUs, as `host:port`."""
    found: list[str] = []
    while address := os.environ.get(f"TVM_RPC_SERVER_{len(found)}"):
        found.append(address)
    return found


def product() -> Any:
    """Return a function that multiplies two matrices, as TVM has compiled it: no other compiler is needed."""
    a, b = (te.placeholder((SIZE, SIZE), name=name) for name in "ab")
    k = te.reduce_axis((0, SIZE), name="k")
    c = te.compute((SIZE, SIZE), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    module = tvm.IRModule({"main": te.create_prim_func([a, b, c])})
    return tvm.compile(module, target="llvm").mod


def multiply_on_all(addresses: list[str], function: Path, rounds: int | None) -> int:
    """Have a process for each cGPU compute; return 1 if one of them fails."""
    context = multiprocessing.get_context("fork")
    begun = context.SimpleQueue()
    workers = [
        context.Process(target=multiply, args=(number, address, function, rounds, begun))
        for number, address in enumerate(addresses)
    ]
    for worker in workers:
        worker.start()
    if all(begun.get() for _ in workers) and rounds is None:
        say("computing")
    for worker in workers:
        worker.join()
    return int(any(worker.exitcode for worker in workers))


def multiply(number: int, address: str, function: Path, rounds: int | None, begun: Any) -> None:
    """Multiply on one cGPU. Print how often, the largest difference from this machine's own product, and how it ended.

    *begun* is told whether there was a first product.
    """
    random = numpy.random.default_rng(number)
    done, largest, error = 0, 0.0, None
    try:
        session = connect(address)
        session.upload(str(function))
        remote = session.load_module(function.name)["main"]
        device = session.cpu(0)
        while rounds is None or done < rounds:
            a, b = (random.random((SIZE, SIZE), dtype=numpy.float32) for _ in range(2))
            c = tvm.runtime.tensor(numpy.zeros_like(a), device)
            remote(tvm.runtime.tensor(a, device), tvm.runtime.tensor(b, device), c)
            largest = max(largest, float(abs(c.numpy() - a @ b).max()))
            done += 1
            if done == 1:
                begun.put(True)
            if rounds is None:
                time.sleep(PAUSE)
    except Exception as failure:  # noqa: BLE001 - what a middleware raises is its own affair
        error = reason(failure)
        if done == 0:
            begun.put(False)
    ended = {"error": error, "at": time.monotonic()} if error else {}
    say(json.dumps({"cgpu": number, "products": done, "largest_error": largest, **ended}))
    # Without TVM's own end, which waits for a server that may be gone.
    os._exit(int(error is not None or largest > TOLERANCE))


def say(line: str) -> None:
    """Print *line* by one write, so that the lines of several processes do not mix."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def allocate(address: str) -> dict[str, Any]:
    """Return how many MiB of a cGPU could be taken, and why no more."""
    taken: list[Any] = []
    try:
        device = connect(address).cpu(0)
        while len(taken) * PIECE_MB < MOST_MB:
            taken.append(tvm.runtime.empty((PIECE_MB << 20,), "uint8", device))
    except Exception as failure:  # noqa: BLE001
        return {"allocated_mb": len(taken) * PIECE_MB, "error": reason(failure)}
    return {"allocated_mb": len(taken) * PIECE_MB, "error": None}


def connect(address: str) -> Any:
    """Return a session with the server at `host:port`."""
    host, _, port = address.rpartition(":")
    return rpc.connect(host, int(port), session_timeout=0)


def reason(failure: Exception) -> str:
    """Return the last line of an error; TVM's have many."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    return lines[-1] if lines else type(failure).__name__


if __name__ == "__main__":
    sys.exit(main())
