# SPDX-License-Identifier: Apache-2.0
"""A server of Apache TVM's RPC that goes on after each client, however that one has ended.

    python -m gsaas.gpu_host.servers.tvm --host 192.0.2.11 --port 9090

TVM's own, `tvm.exec.rpc_server`, accepts no connection any more when a client was killed in the middle of a call,
while its process lives and listens. This one serves one connection after the other, each in a process of its own, as
that one does: so all programs together have no more memory than one process may have.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import sys
import tempfile
from collections.abc import Sequence

from tvm.rpc import base, server

KEEPALIVE = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
"""Seconds until the next client is served if the machine of this one has vanished."""
HANDSHAKE_TIMEOUT = 10.0
"""Seconds for a client to say who it is; others wait meanwhile."""
LONGEST_KEY = 4096
"""Bytes."""
KEY = b"server:"
"""The name of this server: it has none, as a client has to name none."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until a signal ends the process; raises `SystemExit` if the address cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m gsaas.gpu_host.servers.tvm",
        description="Serve this machine's CPU to clients of Apache TVM's RPC.",
    )
    parser.add_argument("--host", metavar="IP", required=True, help="address to listen at")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args(arguments)
    try:
        listener = socket.create_server((options.host, options.port))
    except OSError as error:
        sys.exit(f"cannot listen at {options.host}:{options.port}: {error.strerror}")
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        listener.setsockopt(socket.IPPROTO_TCP, option, value)
    while True:
        serve_next(listener)


def serve_next(listener: socket.socket) -> None:
    """Serve one client to its end."""
    connection, _ = listener.accept()
    with connection, tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            listener.close()
            try:
                serve(connection, folder)
            finally:
                os._exit(0)  # without what the first process does at its end
        os.waitpid(child, 0)


def serve(connection: socket.socket, folder: str) -> None:
    """Serve a client, whose files are in *folder*; return at its end. Raises `OSError` if it is no client of TVM's."""
    connection.settimeout(HANDSHAKE_TIMEOUT)
    (magic,) = struct.unpack("<i", base.recvall(connection, 4))
    (length,) = struct.unpack("<i", base.recvall(connection, 4))
    if magic != base.RPC_MAGIC or not 0 <= length <= LONGEST_KEY:
        raise ConnectionAbortedError("not a client of TVM's RPC")
    base.recvall(connection, length)  # its key, which says what it looks for
    answer = struct.pack("<ii", base.RPC_CODE_SUCCESS, len(KEY)) + KEY
    connection.sendall(answer)
    connection.settimeout(None)
    os.chdir(folder)
    tempfile.tempdir = folder
    # A private name: TVM's own server does no more for one connection.
    server._serve_loop(connection, load_library="", work_path=None)


if __name__ == "__main__":
    main()
