# SPDX-License-Identifier: Apache-2.0
"""What one project learns of another one's leases: nothing."""

from __future__ import annotations

from tempest.lib import decorators, exceptions

from gsaas_tempest_plugin.tests import base


class IsolationTest(base.BaseGpuSchedulingTest):
    """Two projects, of which the first one has a lease."""

    credentials = ["primary", "alt"]

    @classmethod
    def setup_clients(cls) -> None:
        """Make a client of each project."""
        super().setup_clients()
        cls.stranger = cls.client_of(cls.os_alt)

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("ac7a1c8b-b9d8-4a8d-8adb-cf9155019a9c")
    def test_another_projects_lease_is_not_found(self) -> None:
        lease = self.launch_program(keepalive=3600)
        for call in (
            self.stranger.show_lease,
            self.stranger.show_environment,
            self.stranger.keep_lease_alive,
            self.stranger.delete_lease,
        ):
            error = self.refusal(exceptions.NotFound, "gsaas.not-found", call, lease["id"])
            self.assertNotIn(lease["name"], error["detail"])
        self.assertEqual("ACTIVE", self.client.show_lease(lease["id"])["lease"]["status"])

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("69eac72e-11b2-4047-9b52-f73191264643")
    def test_another_projects_lease_is_answered_like_one_that_never_was(self) -> None:
        lease = self.launch_program()
        details = []
        for lease_id in (lease["id"], "00000000-0000-4000-8000-000000000000"):
            error = self.refusal(
                exceptions.NotFound, "gsaas.not-found", self.stranger.show_lease, lease_id
            )
            details.append(error["detail"].replace(lease_id, "LEASE"))
        self.assertEqual(details[0], details[1])

    @decorators.idempotent_id("e5212525-33a1-4bbf-bbe3-c2a34a5a7d2a")
    def test_another_projects_lease_is_in_no_list(self) -> None:
        lease = self.launch_program()
        for query in ({}, {"name": lease["name"]}, {"status": "ACTIVE"}):
            listed = self.stranger.list_leases(**query)["leases"]
            self.assertNotIn(lease["id"], [found["id"] for found in listed])
        self.refusal(
            exceptions.Forbidden, "gsaas.forbidden", self.stranger.list_leases, all_projects="true"
        )

    @decorators.idempotent_id("51e96ef4-16c3-408c-ae34-72567af66e7b")
    def test_another_projects_claims_count_for_no_quota_but_its_own(self) -> None:
        before = self.stranger.show_limits()["limits"]
        self.launch_program()
        self.assertEqual(before, self.stranger.show_limits()["limits"])
