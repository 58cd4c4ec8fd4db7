# SPDX-License-Identifier: Apache-2.0
"""A server of ggml's RPC, from ggml's libraries alone: where llama.cpp's `rpc-server` is missing.

    python -m gsaas.gpu_host.servers.ggml --libraries /opt/llama.cpp/lib --host 192.0.2.11 --port 50052

The Python packages ggml-python and llama-cpp-py-sync contain these libraries. It serves the first GPU that they are
built for and CUDA_VISIBLE_DEVICES shows, or else this machine's CPU: one connection after the other, until a signal
ends it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path

CPU, GPU = 0, 1
"""Kinds of devices, of the enumeration ggml_backend_dev_type in ggml-backend.h."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until a signal ends the process; raises `SystemExit` with the reason if that is not possible."""
    parser = argparse.ArgumentParser(
        prog="python -m gsaas.gpu_host.servers.ggml",
        description="Serve a GPU to clients of ggml's RPC, or this machine's CPU if there is none.",
    )
    parser.add_argument("--libraries", metavar="FOLDER", type=Path, required=True)
    parser.add_argument("--host", metavar="IP", required=True, help="address to listen at")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument(
        "--threads",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="for computing on a CPU (default: one for each core that this process may use)",
    )
    options = parser.parse_args(arguments)
    try:
        rpc = _library(options.libraries / "libggml-rpc.so")
        ggml = _library(options.libraries / "libggml.so")
    except OSError as error:
        sys.exit(f"ggml's libraries cannot be used: {error}")
    first_of = ggml.ggml_backend_dev_by_type
    first_of.restype, first_of.argtypes = ctypes.c_void_p, [ctypes.c_int]
    device = first_of(GPU) or first_of(CPU)
    if device is None:
        sys.exit("ggml's libraries have no device")
    # ggml-rpc.h of protocol 4: endpoint, folder of its cache (none), threads, number of devices, devices.
    serve = rpc.ggml_backend_rpc_start_server
    serve.argtypes = [
        *(ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t),
        ctypes.POINTER(ctypes.c_void_p),
    ]
    serve.restype = None
    endpoint = f"{options.host}:{options.port}".encode()
    serve(endpoint, None, options.threads, 1, (ctypes.c_void_p * 1)(device))
    sys.exit(f"ggml's server at {endpoint.decode()} has ended")


def _library(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


if __name__ == "__main__":
    main()
