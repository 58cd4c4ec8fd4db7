# SPDX-License-Identifier: Apache-2.0
"""GSaaS in openstacksdk: a connection gets an attribute `gpu_scheduling`, like those of other services.

    connection = openstack.connect("mycloud")
    sdk.add_service(connection)
    lease = connection.gpu_scheduling.create_lease(cgpus={"count": 1}, server=None)

The SDK does not look for services of other distributions, so a program adds this one. For a program that cannot be
changed, `vendor_hook: gsaasclient.sdk:add_service` in the cloud's entry of clouds.yaml does the same.
"""

from __future__ import annotations

from openstack.connection import Connection
from openstack.service_description import ServiceDescription

from gsaasclient.sdk.errors import api_error
from gsaasclient.sdk.proxy import Proxy

SERVICE_TYPE = "gpu-scheduling"

__all__ = ["SERVICE_TYPE", "Proxy", "add_service", "api_error"]


def add_service(connection: Connection) -> None:
    """Give *connection* the attribute `gpu_scheduling`, a `Proxy`. No request is sent before it is used."""
    connection.add_service(ServiceDescription(SERVICE_TYPE, supported_versions={"1": Proxy}))
