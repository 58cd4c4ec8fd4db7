# SPDX-License-Identifier: Apache-2.0
"""A client of GSaaS's REST API."""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.parse import urlencode

import urllib3.exceptions
from tempest.lib.common import rest_client

MICROVERSION_HEADER = "OpenStack-API-Version"
SERVICE = "gpu-scheduling"


class GpuSchedulingClient(rest_client.RestClient):
    """Each method returns the body of a response as a `ResponseBody`, whose attribute `response` has the headers.

    A response with another status than the expected one raises an exception of `tempest.lib.exceptions`.
    """

    microversion: str | None = None
    """Asked for by every request; None asks for none."""

    def get_headers(self, accept_type: str | None = None, send_type: str | None = None) -> Any:
        """Return the headers of a request."""
        headers = super().get_headers(accept_type, send_type)
        if self.microversion is not None:
            headers[MICROVERSION_HEADER] = f"{SERVICE} {self.microversion}"
        return headers

    # Versions

    def list_versions(self) -> Any:
        """Return the major versions of the API."""
        return self._call("GET", "/", expected=300)

    def show_version(self) -> Any:
        """Return version 1 with its microversions."""
        return self._call("GET", "/v1")

    # Leases

    def create_lease(self, **lease: Any) -> Any:
        """Launch: the status is 202, or 201 for a lease that can be used at once."""
        key = str(uuid.uuid4())
        try:
            return self._launch(lease, key)
        except (
            urllib3.exceptions.ProtocolError
        ):  # the answer is lost; the key says which request this is
            return self._launch(lease, key)

    def list_leases(self, **query: Any) -> Any:
        """Return one page of leases, oldest first."""
        return self._call("GET", f"/v1/leases{_query(query)}")

    def show_lease(self, lease_id: str, **query: Any) -> Any:
        """Return a lease."""
        return self._call("GET", f"/v1/leases/{lease_id}{_query(query)}")

    def show_environment(self, lease_id: str) -> Any:
        """Return the environment with which programs find the lease's cGPUs."""
        return self._call("GET", f"/v1/leases/{lease_id}/environment")

    def keep_lease_alive(self, lease_id: str) -> Any:
        """Send a keepalive."""
        return self._call("POST", f"/v1/leases/{lease_id}/keepalive")

    def delete_lease(self, lease_id: str) -> Any:
        """Terminate a lease."""
        return self._call("DELETE", f"/v1/leases/{lease_id}", expected=202)

    def list_queue(self) -> Any:
        """Return the waiting requests, in the order of their turns."""
        return self._call("GET", "/v1/queue")

    def create_check(self, **request: Any) -> Any:
        """Return whether a request would fit now."""
        return self._call("POST", "/v1/checks", {"check": request})

    # GPUs, hosts, policies, limits

    def list_gpus(self) -> Any:
        """Return the totals and, for admins, every GPU."""
        return self._call("GET", "/v1/gpus")

    def list_hosts(self) -> Any:
        """Return the totals and, for admins, every GPU host."""
        return self._call("GET", "/v1/hosts")

    def list_endpoints(self) -> Any:
        """Return the reports of the compute hosts' endpoints; for admins."""
        return self._call("GET", "/v1/endpoints")

    def list_policies(self) -> Any:
        """Return the scheduling policies."""
        return self._call("GET", "/v1/policies")

    def show_limits(self) -> Any:
        """Return the quota of the project, and how much of it is used."""
        return self._call("GET", "/v1/limits")

    def is_resource_deleted(self, id: str) -> bool:
        """Return whether a lease has ended, for `wait_for_resource_deletion`."""
        return bool(self.show_lease(id)["lease"]["status"] == "RELEASED")

    @property
    def resource_type(self) -> str:
        """Return what this client's resources are called in messages."""
        return "lease"

    def _launch(self, lease: dict[str, Any], key: str) -> Any:
        more = {"Idempotency-Key": key}
        return self._call("POST", "/v1/leases", {"lease": lease}, expected=[201, 202], more=more)

    def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        expected: int | list[int] = 200,
        more: dict[str, str] | None = None,
    ) -> Any:
        text = None if body is None else json.dumps(body)
        headers = {**self.get_headers(), **(more or {})}
        response, answer = self.request(method, path, headers=headers, body=text)
        self.expected_success(expected, response.status)
        return rest_client.ResponseBody(response, json.loads(answer))


def _query(parameters: dict[str, Any]) -> str:
    return f"?{urlencode(parameters)}" if parameters else ""
