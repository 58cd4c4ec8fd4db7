# SPDX-License-Identifier: Apache-2.0
"""What the tests share: clients, leases that end with their test, and refusals."""

from __future__ import annotations

from typing import Any

from tempest import config, test
from tempest.lib import exceptions
from tempest.lib.common import api_version_utils
from tempest.lib.common.utils import data_utils

from gsaas_tempest_plugin.services import waiters
from gsaas_tempest_plugin.services.gpu_scheduling_client import GpuSchedulingClient

CONF = config.CONF


class BaseGpuSchedulingTest(api_version_utils.BaseMicroversionTest, test.BaseTestCase):
    """A test with a project of its own, and no network unless it asks for one."""

    credentials: list[Any] = ["primary"]
    min_microversion = "1.0"
    client: GpuSchedulingClient

    @classmethod
    def skip_checks(cls) -> None:
        """Skip the class if the cloud has no GSaaS, or not the microversions that the class tests."""
        super().skip_checks()
        if not CONF.service_available.gsaas:
            raise cls.skipException("GSaaS is not available: [service_available]gsaas is false")
        api_version_utils.check_skip_with_microversion(
            cls.min_microversion,
            cls.max_microversion,
            CONF.gpu_scheduling.min_microversion,
            CONF.gpu_scheduling.max_microversion,
        )

    @classmethod
    def setup_credentials(cls) -> None:
        """Get the users of the class."""
        cls.set_network_resources()
        super().setup_credentials()

    @classmethod
    def setup_clients(cls) -> None:
        """Make the client of the first user."""
        super().setup_clients()
        cls.client = cls.client_of(cls.os_primary)

    @classmethod
    def client_of(cls, manager: Any) -> GpuSchedulingClient:
        """Return a client that asks as the user of *manager*."""
        client: GpuSchedulingClient = manager.gpu_scheduling.GpuSchedulingClient()
        client.microversion = api_version_utils.select_request_microversion(
            cls.min_microversion, CONF.gpu_scheduling.min_microversion
        )
        return client

    @staticmethod
    def name() -> str:
        """Return a name that nothing else has."""
        return str(data_utils.rand_name("lease", prefix=CONF.resource_name_prefix))

    @staticmethod
    def share(count: Any = 1, **more: Any) -> dict[str, Any]:
        """Return the request for *count* small shares of GPUs."""
        memory = CONF.gpu_scheduling.cgpu_memory_mb
        return {"count": count, "mode": "shared", "memory_mb": memory, **more}

    def launch(self, client: GpuSchedulingClient | None = None, **lease: Any) -> Any:
        """Return a new lease; when the test ends, it is terminated and its end awaited."""
        client = client or self.client
        lease.setdefault("name", self.name())
        self.addCleanup(end_named, client, lease["name"])  # even if no response comes
        return client.create_lease(**lease)

    def launch_program(self, client: GpuSchedulingClient | None = None, **lease: Any) -> Any:
        """Return a lease without a VM that can be used."""
        client = client or self.client
        lease.setdefault("cgpus", self.share())
        launched = self.launch(client, server=None, **lease)
        return waiters.wait_for_lease_status(client, launched["lease"]["id"], "ACTIVE")

    def refusal(
        self, exception: type[Exception], code: str, call: Any, *given: Any, **named: Any
    ) -> Any:
        """Return the error that *call* is refused with, which must have *code*."""
        raised = self.assertRaises(exception, call, *given, **named)
        (error,) = raised.resp_body
        self.assertEqual(code, error["code"], error)
        self.assertEqual(raised.resp["x-openstack-request-id"], error["request_id"])
        return error


def end(client: GpuSchedulingClient, lease_id: str) -> None:
    """Terminate a lease, if it has not ended, and return once it has."""
    try:
        client.delete_lease(lease_id)
    except exceptions.NotFound:
        return
    waiters.wait_for_lease_status(client, lease_id, "RELEASED")


def end_named(client: GpuSchedulingClient, name: str) -> None:
    """Terminate the lease of that name, if there is one, and return once it has ended."""
    for lease in client.list_leases(name=name)["leases"]:
        end(client, lease["id"])
