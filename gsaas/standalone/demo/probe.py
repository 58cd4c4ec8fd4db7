# SPDX-License-Identifier: Apache-2.0
"""Connect to daemons from inside a VM: `probe.py IP:PORT …` prints one line of JSON for each address.

It is run as a file and uses only the standard library, because a VM has no GSaaS installed.
"""

from __future__ import annotations

import json
import socket
import sys

TIMEOUT = 5
"""Seconds. Only an address whose packets are dropped takes so long; none of the demonstration's does."""


def probe(address: str) -> dict[str, object]:
    """Connect and read one line of JSON; return `{"address", "answer"}`, or `{"address", "error"}` with the reason."""
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
            return {"address": address, "error": f"connected, but then: {error}"}


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(json.dumps(probe(argument)))
