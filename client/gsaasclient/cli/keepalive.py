# SPDX-License-Identifier: Apache-2.0
"""Leases that end when the process that uses them has ended: `gsaas run`, and `gsaas alloc -while=PID`."""

from __future__ import annotations

import os
import select
import sys

from gsaasclient import ApiError, Client, ClientError, find_credentials
from gsaasclient.cli.output import print_error

SECONDS = 60
"""Seconds without a request after which GSaaS assumes that the client has ended, and ends the lease."""


def renew(client: Client, lease_id: str) -> bool:
    """Renew the lease; return False if it has ended. An API that does not answer counts as a success."""
    try:
        answer = client.request("POST", f"/v1/leases/{lease_id}/keepalive")
    except ApiError as error:
        return error.status != 404
    except ClientError:
        return True
    return answer["lease"]["status"] not in ("RELEASING", "ERROR")


def release(client: Client, lease_id: str) -> None:
    """End the lease; print an error if the API does not answer, because the lease then ends by itself."""
    try:
        client.request("DELETE", f"/v1/leases/{lease_id}")
    except ClientError as error:
        if not (isinstance(error, ApiError) and error.status == 404):
            print_error(
                f"lease {lease_id} could not be released; it ends by itself within {SECONDS} s"
            )


def watch(process_id: int) -> int:
    """Return a descriptor that becomes readable when a process ends. Raises `ClientError` if there is none."""
    try:
        return os.pidfd_open(process_id)
    except OSError as error:
        raise ClientError(f"process {process_id} cannot be watched: {error.strerror}") from error


def keep_while(lease_id: str, process: int) -> None:
    """Keep a lease alive from a process in the background, until *process*, a descriptor of `watch`, ends.

    Then the lease is released. The process in the background has no terminal, and holds no file of its caller open.
    """
    sys.stdout.flush()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()  # a signal from the terminal does not end it
        if os.fork() == 0:  # in a second process, which is no child of the shell
            _detach(process)
            _keep(lease_id, process)
    finally:
        os._exit(0)


def _keep(lease_id: str, process: int) -> None:
    client = Client(find_credentials(os.environ))  # a connection of its own
    ended = select.poll()
    ended.register(process, select.POLLIN)
    while not ended.poll(SECONDS / 3 * 1000):
        if not renew(client, lease_id):
            return
    release(client, lease_id)


def _detach(kept: int) -> None:
    """Leave the files and the folder of the caller, all but the descriptor *kept*."""
    os.closerange(0, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    for _ in range(3):  # in the place of standard input, output and error
        os.open(os.devnull, os.O_RDWR)
    os.chdir("/")
