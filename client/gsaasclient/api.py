# SPDX-License-Identifier: Apache-2.0
"""The API client: JSON values in and out, and errors as exceptions."""

from __future__ import annotations

import json

from gsaasclient import idempotency
from gsaasclient.answers import decode
from gsaasclient.errors import ConnectionLostError

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient.cloud import CloudCredentials
    from gsaasclient.credentials import Credentials, KeystoneCredentials
    from gsaasclient.transport import Response
    from gsaasclient.vms import Vm

API_VERSION = "1.0"
"""The microversion of the API that requests are for, unless they need a newer one."""

RESERVATIONS_VERSION = "1.7"
"""The microversion that has reservations, and launches in them."""

CHECKS_VERSION = "1.8"
"""The microversion that has checks in reservations."""

KINDS_VERSION = "1.9"
"""The microversion that tells kinds of devices apart."""

MODELS_VERSION = "1.11"
"""The microversion that lists the models of GPUs."""

ENDS_VERSION = "1.11"
"""The microversion whose leases may have an end."""

CHANGED_RESERVATIONS_VERSION = "1.11"
"""The microversion that has changes of reservations."""

MOVES_VERSION = "1.11"
"""The microversion that has moves of cGPUs."""

COSTS_VERSION = "1.11"
"""The microversion whose usage says what it costs."""

LEASES = "/v1/leases"


def version_for(cgpus: dict[str, Any], otherwise: str) -> str:
    """Return the microversion that a request for these cGPUs needs, if that is newer than *otherwise*."""
    return KINDS_VERSION if "kind" in cgpus else otherwise


def version_of(lease: dict[str, Any]) -> str:
    """Return the microversion for a request about *lease*, be it to launch it or to read it again as it was read."""
    if lease.keys() & {"duration", "ends_at", "movable"}:
        return ENDS_VERSION  # which is that of consents to moves, too
    return version_for(
        lease["cgpus"], RESERVATIONS_VERSION if "reservation" in lease else API_VERSION
    )


class Client:
    """Sends requests to the API with the given credentials. Not for several threads at once."""

    def __init__(self, credentials: Credentials | KeystoneCredentials | CloudCredentials) -> None:
        self._transport = credentials.connect()

    def hurry(self, seconds: float) -> None:
        """Wait for at most *seconds* for an answer to further requests, as after an interrupt."""
        self._transport.timeout = seconds

    def lend_terminal(self) -> None:
        """Print nothing any more about requests that take long: the terminal is another program's."""

    def launch(self, lease: dict[str, Any], key: str | None = None) -> Any:
        """Request a *lease* as `POST /v1/leases` takes it, and return the answer.

        If the connection breaks, the request is sent once more. The API knows it by its *key*, by default a new one,
        and makes no second lease. Raises what `request` raises.
        """
        key = key or idempotency.new_key()
        body = {"lease": lease}
        return idempotency.send(
            lambda: self.request("POST", LEASES, body, version_of(lease), key), ConnectionLostError
        )

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        version: str = API_VERSION,
        key: str | None = None,
    ) -> Any:
        """Send a request and return the answer: the value of its JSON, its text, or None if it is empty.

        *path* begins with `/v1`; *body*, unless None, is sent as JSON; *version* is the microversion, *key* the
        Idempotency-Key of a launch. Raises `ApiError` for an error status, `UnreachableError` if there is no answer,
        and `CredentialsError` if Keystone refuses the credentials.
        """
        headers = {} if key is None else {idempotency.HEADER: key}
        headers |= {
            "Accept": "application/json, text/plain",
            "OpenStack-API-Version": f"gpu-scheduling {version}",
        }
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        return decode(self.send(method, path, content, headers))

    def send(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Response:
        """Send a request and return the response, as `Transport.send` does."""
        return self._transport.send(method, path, content, headers)

    def resolve(self, noun: str, name: str) -> str:
        """Return the id of the image, flavor or network with this *name*; *name* itself if it is an id.

        *noun* is one of these three words. Raises `ClientError` if the cloud has none with this name, or several.
        """
        return self._transport.resolve(noun, name)

    def vm(self, server_id: str) -> Vm | None:
        """Return how to log in to the VM with this id; None if that is not known, or there is no cloud."""
        return self._transport.vm(server_id)
