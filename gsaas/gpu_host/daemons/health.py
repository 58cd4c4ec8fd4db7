# SPDX-License-Identifier: Apache-2.0
"""Health checks of daemons: one function for each kind; each raises `HealthCheckFailed`, which says what went wrong."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from gsaas.gpu_host.daemons import ports
from gsaas.objects.daemon import Daemon

TIMEOUT = 3.0
"""Seconds for a whole check, however often the daemon sends something: it runs what a tenant has sent."""

HealthCheck = Callable[[str, Daemon], str | None]
"""Checks the daemon at this IPv4 address; raises `HealthCheckFailed`. Returns its version, None if it reports none."""
VERSION_HEADERS = ("x-lupine-wire-identity", "x-lupine-version", "x-lupine-cuda-version")
"""Headers in which a daemon reports its version; the first one that it sends counts."""
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}")
"""What a version may be: consumers of other leases are told it, and the daemon runs what a tenant has sent."""


class HealthCheckFailed(Exception):
    """A daemon did not answer as it should; the message is a sentence without its subject."""


class LimitLost(HealthCheckFailed):
    """A daemon has to be ended, because new programs would have no memory limit there."""


def tcp(address: str, daemon: Daemon) -> str | None:
    """Check that the daemon accepts a connection."""
    _connect(address, daemon.port).close()
    return None


def listens(_address: str, daemon: Daemon) -> str | None:
    """Check that a process listens on its port, without a connection: for daemons that serve one after the other."""
    if not ports.is_listening(daemon.port):
        raise HealthCheckFailed(f"does not listen on port {daemon.port}")
    return None


def http2(address: str, daemon: Daemon) -> str | None:
    """Check that it answers `HEAD /` over HTTP/2 with prior knowledge (RFC 9113, section 3.3); return its version."""
    # Imported here: only monitors of such daemons need it.
    import h2.config
    import h2.connection
    import h2.events
    import h2.exceptions

    deadline = time.monotonic() + TIMEOUT
    with _connect(address, daemon.port) as stream:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        connection.initiate_connection()
        authority = f"{address}:{daemon.port}"
        fields = {":method": "HEAD", ":scheme": "http", ":path": "/", ":authority": authority}
        connection.send_headers(1, list(fields.items()), end_stream=True)
        try:
            stream.sendall(connection.data_to_send())
            while data := _receive(stream, 65536, deadline):
                for event in connection.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived):
                        headers = {_text(name): _text(value) for name, value in event.headers}
                        if headers[":status"] != "200":
                            raise HealthCheckFailed(
                                f"answers HEAD / with status {headers[':status']}"
                            )
                        return _version(headers)
                # A received frame may need an acknowledgement: the server's SETTINGS, or a PING. A server that has
                # answered may have hung up by now; its answer is still to be read.
                with suppress(OSError):
                    stream.sendall(connection.data_to_send())
        except h2.exceptions.ProtocolError as error:
            raise HealthCheckFailed(f"does not speak HTTP/2 ({error})") from None
        except OSError as error:
            raise HealthCheckFailed(f"does not answer over HTTP/2 ({error})") from None
    raise HealthCheckFailed("closed the connection without an answer over HTTP/2")


def simulated(address: str, daemon: Daemon) -> str | None:
    """Check that it names its GPU, in one line of JSON."""
    deadline = time.monotonic() + TIMEOUT
    line = b""
    try:
        with _connect(address, daemon.port) as stream:
            while b"\n" not in line and len(line) < 4096:
                received = _receive(stream, 4096 - len(line), deadline)
                if not received:
                    break
                line += received
            answer = json.loads(line.partition(b"\n")[0])
    except (OSError, ValueError) as error:
        raise HealthCheckFailed(f"does not name its GPU ({error})") from None
    if not isinstance(answer, dict) or answer.get("gpu") != daemon.gpu_uuid:
        raise HealthCheckFailed(f"serves another GPU: {answer}")
    return None


CHECKS: Mapping[str, HealthCheck] = {
    "tcp": tcp,
    "http2": http2,
    "listens": listens,
    "simulated": simulated,
}
"""By the names of `[daemons]health`, which `gsaas.remoting.daemon` defines."""


def _connect(address: str, port: int) -> socket.socket:
    try:
        return socket.create_connection((address, port), TIMEOUT)
    except OSError as error:
        raise HealthCheckFailed(f"accepts no connection on port {port} ({error})") from None


def _receive(stream: socket.socket, most: int, deadline: float) -> bytes:
    """Return the next bytes, none at the end; raise `TimeoutError` at *deadline*, by `time.monotonic`.

    What is sent until the next call has to be sent by then, too.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    stream.settimeout(left)
    return stream.recv(most)


def _version(headers: Mapping[str, str]) -> str | None:
    told = next((headers[name] for name in VERSION_HEADERS if headers.get(name)), "")
    return told if _VERSION.fullmatch(told) else None


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
