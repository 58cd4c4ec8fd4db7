"""Does a daemon answer? One function for each way to ask; each raises `Unhealthy`, which says what it heard instead."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping

from gsaas.objects.daemon import Daemon

PATIENCE = 3.0
"""Seconds for a whole conversation's steps."""

Check = Callable[[str, Daemon], None]
"""Ask the daemon at this IPv4 address."""


class Unhealthy(Exception):
    """It did not answer as it should; the message is the end of a sentence about it."""


def tcp(address: str, daemon: Daemon) -> None:
    """It takes a connection."""
    _connect(address, daemon.port).close()


def http2(address: str, daemon: Daemon) -> None:
    """It answers `HEAD /` over HTTP/2 with prior knowledge (RFC 9113, section 3.3)."""
    # Only monitors of such daemons need it.
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
                stream.sendall(connection.data_to_send())
        except h2.exceptions.ProtocolError as error:
            raise Unhealthy(f"does not speak HTTP/2 ({error})") from None
        except OSError as error:
            raise Unhealthy(f"does not answer over HTTP/2 ({error})") from None
    raise Unhealthy("closed the connection without an answer")


def simulated(address: str, daemon: Daemon) -> None:
    """It names its GPU."""
    try:
        with _connect(address, daemon.port) as stream, stream.makefile("rb") as lines:
            said = json.loads(lines.readline(4096))
    except (OSError, ValueError) as error:
        raise Unhealthy(f"does not name its GPU ({error})") from None
    if not isinstance(said, dict) or said.get("gpu") != daemon.gpu_uuid:
        raise Unhealthy(f"serves another GPU: {said}")


CHECKS: Mapping[str, Check] = {"tcp": tcp, "http2": http2, "simulated": simulated}
"""By the names that `gsaas.remoting.daemon` knows."""


def _connect(address: str, port: int) -> socket.socket:
    try:
        return socket.create_connection((address, port), PATIENCE)
    except OSError as error:
        raise Unhealthy(f"takes no connection on port {port} ({error})") from None


def _check_status(headers: Mapping[bytes | str, bytes | str]) -> None:
    status = headers.get(b":status", headers.get(":status"))
    text = status.decode() if isinstance(status, bytes) else str(status)
    if text != "200":
        raise Unhealthy(f"answers HEAD / with status {text}")
