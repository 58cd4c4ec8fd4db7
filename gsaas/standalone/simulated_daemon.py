# SPDX-License-Identifier: Apache-2.0
"""The daemons of the simulated middleware: each serves one GPU, sends its name, and then echoes.

To a new connection a daemon sends one line, `{"gpu": uuid, "host": name, "peer": "ip"}`, and then echoes what it
receives. The peer is the source address that the daemon sees, from which tests learn what RODVR has translated.

    daemons = SimulatedDaemons()
    daemons.start("GPU-8f6a…", "gpu01", Address("192.0.2.7", 8308), netns="gpu01")
    daemons.stop("GPU-8f6a…")

A second daemon of the same GPU needs another name.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

from gsaas.netlink.namespace import entered
from gsaas.objects.address import Address


class SimulatedDaemons:
    """Any number of daemons in one thread of this process. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._daemons: dict[str, _Daemon] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(
        self,
        gpu_uuid: str,
        host: str,
        address: Address,
        netns: str | None = None,
        *,
        name: str | None = None,
    ) -> None:
        """Serve the GPU *gpu_uuid* of *host* at *address*; the daemon listens when this returns.

        *netns* names a network namespace; None is this process's own. *name* is the name by which `stop` finds the
        daemon, the GPU's UUID by default. Raises `OSError` if the address cannot be bound, `ValueError` if there is
        a daemon of that name already.
        """
        key = name or gpu_uuid
        with self._lock:
            if key in self._daemons:
                raise ValueError(f"there is a daemon {key} already")
            daemon = _Daemon(gpu_uuid, host, _listener(address, netns))
            self._run(daemon.start())
            self._daemons[key] = daemon

    def stop(self, name: str) -> None:
        """Close a daemon's listener and its connections; do nothing if there is no daemon of that name."""
        with self._lock:
            daemon = self._daemons.pop(name, None)
            if daemon:
                self._run(daemon.stop())

    def stop_all(self) -> None:
        """Stop every daemon and the thread; `start` may be called again."""
        with self._lock:
            for daemon in self._daemons.values():
                self._run(daemon.stop())
            self._daemons.clear()
            if self._loop and self._thread:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
            self._loop = self._thread = None

    def _run(self, step: Coroutine[Any, Any, None]) -> None:
        """Run *step* in the event loop, which is started if needed, and wait for it; call it with the lock."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="simulated-daemons", daemon=True
            )
            self._thread.start()
        asyncio.run_coroutine_threadsafe(step, self._loop).result()


class _Daemon:
    """The daemon of one GPU; its methods run in the event loop."""

    def __init__(self, gpu_uuid: str, host: str, listener: socket.socket) -> None:
        self._gpu_uuid = gpu_uuid
        self._host = host
        self._listener = listener
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._listener)

    async def stop(self) -> None:
        self._server.close()
        for writer in self._connections.values():
            writer.transport.abort()  # `close` would wait for a client that does not read
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (only a task runs a coroutine of asyncio's servers)
        self._connections[task] = writer
        try:
            peer, _ = writer.get_extra_info("peername")
            hello = {"gpu": self._gpu_uuid, "host": self._host, "peer": peer}
            writer.write(json.dumps(hello).encode() + b"\n")
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # the client, or `stop`, has closed the connection
        finally:
            del self._connections[task]
            writer.close()


def _listener(address: Address, netns: str | None) -> socket.socket:
    """Return a listening socket in *netns*; a socket stays in the namespace in which it was made.

    TCP keepalive is on, and accepted connections inherit it, so that connections of vanished clients are closed.
    """
    with entered(netns):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        listener.bind((address.ip, address.port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve one GPU until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(
        description="A daemon that serves one simulated GPU: it sends the GPU's name."
    )
    parser.add_argument("--gpu", required=True, metavar="UUID")
    parser.add_argument("--host", required=True, metavar="NAME")
    parser.add_argument("--listen", required=True, metavar="IP:PORT", type=Address.parse)
    args = parser.parse_args(arguments)

    signals = {signal.SIGTERM, signal.SIGINT}
    # Before the daemons' thread starts, which inherits the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    daemons = SimulatedDaemons()
    daemons.start(args.gpu, args.host, args.listen)
    signal.sigwait(signals)
    daemons.stop_all()
