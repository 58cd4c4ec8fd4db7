# SPDX-License-Identifier: Apache-2.0
"""How heat-engine calls GSaaS: with the SDK's service, and the token of the stack's owner."""

from __future__ import annotations

from typing import Any

from heat.engine.clients.os.openstacksdk import OpenStackSDKPlugin
from openstack import exceptions

from gsaasclient.sdk import SERVICE_TYPE, Proxy, add_service

NAME = "gsaas"
"""The name of the entry point."""


class GsaasClientPlugin(OpenStackSDKPlugin):
    """The client `gsaas` of Heat: a `gsaasclient.sdk.Proxy`."""

    service_types = [SERVICE_TYPE]

    def _create(self, version: str | None = None) -> Proxy:
        connection = super()._create(version)
        add_service(connection)
        proxy: Proxy = connection.gpu_scheduling
        return proxy

    def _get_service_interfaces(self) -> dict[str, Any]:
        interface = self._get_client_option(NAME, "endpoint_type")
        key = f"{SERVICE_TYPE.replace('-', '_')}_interface"
        return {**super()._get_service_interfaces(), key: interface}

    def is_conflict(self, ex: Exception) -> bool:
        """Return whether the API refused a request because of the state that something is in."""
        return isinstance(ex, exceptions.ConflictException)
