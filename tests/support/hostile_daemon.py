# SPDX-License-Identifier: Apache-2.0
"""A daemon whose tenant has taken it over: it serves as usual, and runs whatever program it is sent.

    hostile_daemon.py PORT GPU NAME

At PORT it speaks the simulated middleware's protocol. Programs come by the abstract socket NAME, which the fence does
not guard; the answer is what the program prints, or the error that ended it.
"""

import contextlib
import io
import json
import os
import signal
import socket
import sys
import threading


def main(port, gpu, name):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    listener = socket.create_server(("0.0.0.0", int(port)))
    threading.Thread(target=serve, args=(listener, gpu), daemon=True).start()
    orders = socket.socket(socket.AF_UNIX)
    orders.bind("\0" + name)
    orders.listen()
    while True:
        connection, _ = orders.accept()
        with connection:
            program = b"".join(iter(lambda: connection.recv(65536), b""))  # noqa: B023
            connection.sendall(run(program).encode(errors="replace"))


def serve(listener, gpu):
    while True:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(json.dumps({"gpu": gpu}).encode() + b"\n")


def run(program):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(program, {"os": os, "socket": socket, "signal": signal})  # noqa: S102
        except BaseException as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"
    return printed.getvalue()


main(*sys.argv[1:])
