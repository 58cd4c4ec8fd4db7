# SPDX-License-Identifier: Apache-2.0
"""Which of many authorities has signed a server's certificate.

A bundle of all public authorities takes OpenSSL 20 ms to read, more than a request takes. One command finds the
authority that counts, and the next ones read no other.
"""

from __future__ import annotations

import re
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from gsaasclient.transport import TIMEOUT

CERTIFICATE = re.compile(
    r"-----BEGIN (CERTIFICATE|TRUSTED CERTIFICATE)-----.+?-----END \1-----", re.S
)
FEW = 4
"""So many authorities are read quickly: it is not worth the connections to find the one that counts."""


def signing(url: str, bundle: str) -> str:
    """Return the certificates of the file *bundle* with which the server at *url* is verified, as PEM: one, or a few.

    Raises `OSError` if the file cannot be read or the server cannot be verified with it.
    """
    text = Path(bundle).read_text(encoding="utf-8", errors="replace")
    candidates = [found[0] for found in CERTIFICATE.finditer(text)]
    _connect(url, candidates)
    while len(candidates) > FEW:
        half = candidates[: len(candidates) // 2]
        try:
            _connect(url, half)
        except ssl.SSLCertVerificationError:
            half = candidates[len(half) :]
        candidates = half
    _connect(url, candidates)  # a chain may need authorities of both halves
    return "\n".join(candidates) + "\n"


def _connect(url: str, authorities: list[str]) -> None:
    """Open a connection to the server, and close it. Raises `OSError` unless *authorities* verify its certificate."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    context = ssl.create_default_context(cadata="\n".join(authorities))
    with (
        socket.create_connection((host, parts.port or 443), timeout=TIMEOUT) as connection,
        context.wrap_socket(connection, server_hostname=host),
    ):
        pass
