# SPDX-License-Identifier: Apache-2.0
"""HAProxy, which ends TLS in front of the services of a cloud."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support import certificates
from tests.support.ports import free_ports
from tests.support.waiting import until

PACKAGE = "haproxy"
SETTINGS = """\
global
    maxconn 4096
defaults
    mode http
    option http-keep-alive
    timeout connect 5s
    timeout client 120s
    timeout server 120s
    timeout http-keep-alive 120s
"""


def program() -> str | None:
    """Return the path of HAProxy, or None if it is not installed."""
    return shutil.which(PACKAGE)


@contextmanager
def ending_tls(folder: Path, servers: Mapping[str, int]) -> Iterator[tuple[dict[str, str], str]]:
    """Run HAProxy in front of *servers*, which are TCP ports of loopback by name, with files in *folder*.

    Yields the https URL of each, and the file of the certificate to trust.
    """
    haproxy = program()
    assert haproxy is not None
    certificate, key = certificates.self_signed(folder)
    both = folder / "proxy.pem"
    both.touch(mode=0o600)
    both.write_text(Path(certificate).read_text() + Path(key).read_text())
    ports = dict(zip(servers, free_ports(len(servers)), strict=True))
    parts = [
        f"listen {name}\n    bind 127.0.0.1:{ports[name]} ssl crt {both} alpn http/1.1\n"
        f"    server {name} 127.0.0.1:{server}\n"
        for name, server in servers.items()
    ]
    settings = folder / "haproxy.cfg"
    settings.write_text(SETTINGS + "".join(parts))
    process = subprocess.Popen([haproxy, "-db", "-q", "-f", str(settings)])
    try:
        until(lambda: all(map(_listens, ports.values())), "HAProxy", 30)
        yield {name: f"https://127.0.0.1:{port}" for name, port in ports.items()}, certificate
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
