# SPDX-License-Identifier: Apache-2.0
"""Health checks of daemons: one function for each kind; each raises `HealthCheckFailed`, which says what went wrong."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping

from gsaas.objects.daemon import Daemon

TIMEOUT = 3.0
"""Seconds for each step of the conversation with a daemon."""

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

    with _connect(address, daemon.port) as stream:
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        connection.initiate_connection()
        authority = f"{address}:{daemon.port}"
        fields = {":method": "HEAD", ":scheme": "http", ":path": "/", ":authority": authority}
        connection.send_headers(1, list(fields.items()), end_stream=True)
        try:
            stream.sendall(connection.data_to_send())
            while data := stream.recv(65536):
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
    try:
        with _connect(address, daemon.port) as stream, stream.makefile("rb") as lines:
            answer = json.loads(lines.readline(4096))
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


def _check_status(headers: Mapping[bytes | str, bytes | str]) -> None:
    status = headers.get(b":status", headers.get(":status"))
    text = status.decode() if isinstance(status, bytes) else str(status)
    if text != "200":
        raise HealthCheckFailed(f"answers HEAD / with status {text}")
