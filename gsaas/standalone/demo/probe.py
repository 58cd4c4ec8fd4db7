"""What a program inside a VM finds at the end of an address: `probe.py IP:PORT …`, one JSON line each.

Run as a file of its own, with nothing but the standard library, because a VM has no GSaaS in it.
"""

from __future__ import annotations

import json
import socket
import sys

TIMEOUT = 5
"""Seconds. Only an address that answers with silence takes so long, and none should."""


def probe(address: str) -> dict[str, object]:
    """Connect and read one line: `{"address", "answer"}`, or `{"address", "error"}` with its name."""
    ip, _, port = address.rpartition(":")
    try:
        connection = socket.create_connection((ip, int(port)), TIMEOUT)
    except OSError as error:
        return {"address": address, "error": error.strerror or str(error)}
    with connection:
        try:
            line = connection.makefile("rb").readline()
            return {"address": address, "answer": json.loads(line)}
        except (OSError, ValueError) as error:
            return {"address": address, "error": f"connected, and then: {error}"}


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(json.dumps(probe(argument)))
