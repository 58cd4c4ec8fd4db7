"""Showing a grant at a gate. Only the standard library: it runs where the consumer does, and starts fast."""

from __future__ import annotations

import socket

GATE, GRANT, LEASE = "GSAAS_GATE", "GSAAS_GRANT", "GSAAS_LEASE"
"""What a lease's environment says: where to show which grant, and for what."""

PATIENCE = 20.0
"""Seconds for the gate to ask the service."""


class NotAdmitted(Exception):
    """The gate said no, or nothing; `code` is the API's for the refusal, None without one."""

    def __init__(self, sentence: str, code: str | None = None) -> None:
        super().__init__(sentence)
        self.code = code


def show(gate: str, lease_id: str, grant: str) -> None:
    """Show *grant* at *gate* (`192.0.2.7:8307`); return once this host is admitted. Raises `NotAdmitted`."""
    host, _, port = gate.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(f"{lease_id} {grant}\n".encode())
            with connection.makefile("rb") as stream:
                answer = stream.readline().decode("utf-8", "replace").strip()
    except (OSError, ValueError) as error:
        raise NotAdmitted(f"the gate at {gate} cannot be reached: {error}") from error
    if answer == "admitted":
        return
    word, _, rest = answer.partition(" ")
    code, _, sentence = rest.partition(" ")
    if word != "refused" or not sentence:
        raise NotAdmitted(f"the gate at {gate} gave no answer")
    raise NotAdmitted(sentence, code)
