# SPDX-License-Identifier: Apache-2.0
"""Invalid requests: all of them are refused, and none changes anything."""

from __future__ import annotations

from typing import Any

from tempest.lib import decorators, exceptions

from gsaas_tempest_plugin.tests import base

NO_ID = "00000000-0000-4000-8000-000000000000"


class InvalidRequestsTest(base.BaseGpuSchedulingTest):
    """Every test launches something that no cloud accepts."""

    def setUp(self) -> None:
        """See what the project uses."""
        super().setUp()
        self.before = self.client.show_limits()["limits"]

    def refused(self, code: str, **lease: Any) -> str:
        """Return the detail of the status 400 with which a launch of *lease* is refused."""
        lease.setdefault("server", None)
        error = self.refusal(exceptions.BadRequest, code, self.client.create_lease, **lease)
        self.assertEqual(self.before, self.client.show_limits()["limits"])
        return str(error["detail"])

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("807cc4de-4d4a-41c9-8a05-7b86a7356cf9")
    def test_a_number_that_is_none(self) -> None:
        for count in (0, -1, 1.5, "2", None):
            detail = self.refused("gsaas.bad-request", cgpus=self.share(count))
            self.assertIn("lease.cgpus.count", detail)

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("ecf6fa25-fc24-4411-85df-cfe49e18ee93")
    def test_shares_without_a_size_and_whole_gpus_with_one(self) -> None:
        shared = {"count": 1, "mode": "shared"}
        self.assertIn("memory_mb", self.refused("gsaas.bad-request", cgpus=shared))
        whole = {"count": 1, "mode": "exclusive", "memory_mb": 64}
        self.assertIn("memory_mb", self.refused("gsaas.bad-request", cgpus=whole))

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("4e38eb9b-5da0-4c2d-bbad-a2fe1bff025b")
    def test_values_and_fields_that_there_are_not(self) -> None:
        for field, value in (("locality", "near"), ("mode", "mine"), ("hosts", "two")):
            detail = self.refused("gsaas.bad-request", cgpus=self.share(**{field: value}))
            self.assertIn(f"lease.cgpus.{field}", detail)
        self.assertIn(
            "localty", self.refused("gsaas.bad-request", cgpus=self.share(localty="local"))
        )

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("7d4a8ac1-e36a-4b16-86a1-4fe5310967e3")
    def test_a_policy_that_is_not_installed(self) -> None:
        self.refused("gsaas.policy.unknown", cgpus=self.share(policy="no-such-policy"))

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("c71e956c-ea8b-4074-9b4c-ced5a8bbfd4b")
    def test_a_consumer_beside_a_server(self) -> None:
        consumer = {"address": "192.0.2.1"}
        self.refused("gsaas.bad-request", cgpus=self.share(), server={}, consumer=consumer)
        self.refused("gsaas.bad-request", cgpus=self.share(), consumer={"address": "192.0.2.999"})

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("0d6bbf5b-bf09-4861-a4f9-22e96a679013")
    def test_user_data_that_is_not_base64(self) -> None:
        server = {"imageRef": NO_ID, "flavorRef": NO_ID, "user_data": "#!/bin/sh"}
        detail = self.refused("gsaas.bad-request", cgpus=self.share(), server=server)
        self.assertIn("user_data", detail)

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("05238d45-7bc1-493d-907b-990e2a8da8ba")
    def test_a_server_that_nova_would_not_create(self) -> None:
        # Without a network, a VM could not reach its cGPUs.
        server = {"imageRef": NO_ID, "flavorRef": NO_ID, "networks": "none"}
        detail = self.refused("gsaas.server.refused", cgpus=self.share(), server=server)
        self.assertIn("networks", detail)

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("6c17c0fb-2ddf-4c1e-ad9f-f8d6f008c796")
    def test_a_parameter_that_there_is_not(self) -> None:
        self.refusal(
            exceptions.BadRequest, "gsaas.bad-request", self.client.list_leases, colour="green"
        )
