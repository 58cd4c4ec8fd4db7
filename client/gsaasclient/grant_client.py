# SPDX-License-Identifier: Apache-2.0
"""Presenting a grant at a gate. Only the standard library: it runs where the consumer does, and starts fast."""

from __future__ import annotations

import socket

GATE, GRANT, LEASE = "GSAAS_GATE", "GSAAS_GRANT", "GSAAS_LEASE"
"""Variables of a lease's environment: the gate's HOST:PORT, the grant, and the lease's id."""

TIMEOUT = 20.0
"""Seconds for each step of the conversation; the gate asks the engine meanwhile."""


class NotAdmitted(Exception):
    """The gate refused the grant or did not answer; `code` is the API's code of the refusal, None without one."""

    def __init__(self, reason: str, code: str | None = None) -> None:
        super().__init__(reason)
        self.code = code


def present(gate: str, lease_id: str, grant: str) -> None:
    """Present *grant* at *gate* (`192.0.2.7:8307`); return once this host is admitted. Raises `NotAdmitted`."""
    host, _, port = gate.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=TIMEOUT) as connection:
            connection.sendall(f"{lease_id} {grant}\n".encode())
            with connection.makefile("rb") as stream:
                answer = stream.readline().decode("utf-8", "replace").strip()
    except (OSError, ValueError) as error:
        raise NotAdmitted(f"the gate at {gate} cannot be reached: {error}") from error
    if answer == "admitted":
        return
    verdict, _, rest = answer.partition(" ")
    code, _, reason = rest.partition(" ")
    if verdict != "refused" or not reason:
        raise NotAdmitted(f"the gate at {gate} gave no answer")
    raise NotAdmitted(reason, code)
