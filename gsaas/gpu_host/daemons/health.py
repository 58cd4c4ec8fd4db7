# SPDX-License-Identifier: Apache-2.0
"""Health checks of daemons: one function for each kind; each raises `HealthCheckFailed`, which says what went wrong."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping

from gsaas.objects.daemon import Daemon

TIMEOUT = 3.0
"""Seconds for a whole check, however often the daemon sends something: it runs what a tenant has sent."""

HealthCheck = Callable[[str, Daemon], None]
"""Checks the daemon at this IPv4 address; raises `HealthCheckFailed`."""


class HealthCheckFailed(Exception):
    """A daemon did not answer as it should; the message is a sentence without its subject."""


def tcp(address: str, daemon: Daemon) -> None:
    """Check that the daemon accepts a connection."""
    _connect(address, daemon.port).close()


def http2(address: str, daemon: Daemon) -> None:
    """Check that it answers `HEAD /` over HTTP/2 with prior knowledge (RFC 9113, section 3.3)."""
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
                        _check_status(dict(event.headers))
                        return
                # A received frame may need an acknowledgement: the server's SETTINGS, or a PING.
                stream.sendall(connection.data_to_send())
        except h2.exceptions.ProtocolError as error:
            raise HealthCheckFailed(f"does not speak HTTP/2 ({error})") from None
        except OSError as error:
            raise HealthCheckFailed(f"does not answer over HTTP/2 ({error})") from None
    raise HealthCheckFailed("closed the connection without an answer")


def simulated(address: str, daemon: Daemon) -> None:
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


CHECKS: Mapping[str, HealthCheck] = {"tcp": tcp, "http2": http2, "simulated": simulated}
"""By the names of `[daemons]health`, which `gsaas.remoting.daemon` defines."""


def _connect(address: str, port: int) -> socket.socket:
    try:
        return socket.create_connection((address, port), TIMEOUT)
    except OSError as error:
        raise HealthCheckFailed(f"takes no connection on port {port} ({error})") from None


def _receive(stream: socket.socket, most: int, deadline: float) -> bytes:
    """Return the next bytes, none at the end; raise `TimeoutError` at *deadline*, by `time.monotonic`.

    What is sent until the next call has to be sent by then, too.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    stream.settimeout(left)
    return stream.recv(most)


def _check_status(headers: Mapping[bytes | str, bytes | str]) -> None:
    status = headers.get(b":status", headers.get(":status"))
    text = status.decode() if isinstance(status, bytes) else str(status)
    if text != "200":
        raise HealthCheckFailed(f"answers HEAD / with status {text}")
