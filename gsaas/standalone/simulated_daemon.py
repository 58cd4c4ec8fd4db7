"""The daemons of the simulated middleware: each stands for one GPU, names it, and echoes.

On connect a daemon sends one line, `{"gpu": uuid, "host": name, "peer": "ip"}`, and from then on
returns what it is sent. The peer is whom the daemon sees, which tells a demonstration what RODVR
translated.

    daemons = SimulatedDaemons()
    daemons.start("GPU-8f6a…", "gpu01", Address("192.0.2.7", 8308), netns="gpu01")
    daemons.stop("GPU-8f6a…")

A second daemon of the same GPU needs a name of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyroute2.netns import setns

from gsaas.objects.address import Address


class SimulatedDaemons:
    """Any number of daemons in one thread of this process; call it from any thread."""

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
        """Serve *gpu_uuid* of *host* at *address*, listening when this returns.

        *netns* is a network namespace by name, None this process's own. *name* is what the daemon is
        stopped by, the GPU's UUID unless it is given. `OSError` if the address cannot be bound;
        `ValueError` if there is a daemon of that name already.
        """
        known_as = name or gpu_uuid
        with self._lock:
            if known_as in self._daemons:
                raise ValueError(f"there is a daemon {known_as} already")
            daemon = _Daemon(gpu_uuid, host, _listener(address, netns))
            self._run(daemon.start())
            self._daemons[known_as] = daemon

    def stop(self, name: str) -> None:
        """Close a daemon's listener and cut its connections; one that is not there is no fault."""
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
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="simulated-daemons", daemon=True
            )
            self._thread.start()
        asyncio.run_coroutine_threadsafe(step, self._loop).result()


class _Daemon:
    """One GPU's daemon; its methods run in the event loop."""

    def __init__(self, gpu_uuid: str, host: str, listener: socket.socket) -> None:
        self._gpu_uuid = gpu_uuid
        self._host = host
        self._listener = listener
        self._connections: dict[asyncio.Task, asyncio.StreamWriter] = {}
        self._server: asyncio.Server

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._listener)

    async def stop(self) -> None:
        self._server.close()
        for writer in self._connections.values():
            writer.transport.abort()  # a tenant that does not read must not keep the connection
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._connections[task] = writer
        try:
            peer, _ = writer.get_extra_info("peername")
            hello = {"gpu": self._gpu_uuid, "host": self._host, "peer": peer}
            writer.write(json.dumps(hello).encode() + b"\n")
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # the client went, or `stop` cut it
        finally:
            del self._connections[task]
            writer.close()


def _listener(address: Address, netns: str | None) -> socket.socket:
    """A listening socket of *netns*; sockets stay in the namespace they were made in.

    TCP keepalive is on, and accepted connections inherit it, so clients that vanish are forgotten.
    """
    with _inside(netns):
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


@contextmanager
def _inside(netns: str | None) -> Iterator[None]:
    """Move this thread, and no other, into a namespace that exists, and back."""
    if netns is None:
        yield
        return
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        there = os.open(f"/run/netns/{netns}", os.O_RDONLY)
        try:
            setns(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            setns(home)
    finally:
        os.close(home)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve one GPU until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="A daemon that stands for one GPU and names it.")
    parser.add_argument("--gpu", required=True, metavar="UUID")
    parser.add_argument("--host", required=True, metavar="NAME")
    parser.add_argument("--listen", required=True, metavar="IP:PORT", type=Address.parse)
    given = parser.parse_args(arguments)

    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # before the thread, which inherits it
    daemons = SimulatedDaemons()
    daemons.start(given.gpu, given.host, given.listen)
    signal.sigwait(signals)
    daemons.stop_all()
