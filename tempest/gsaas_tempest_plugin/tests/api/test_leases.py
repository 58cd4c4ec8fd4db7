# SPDX-License-Identifier: Apache-2.0
"""The life of a lease without a VM."""

from __future__ import annotations

from tempest.lib import decorators, exceptions

from gsaas_tempest_plugin.services import waiters
from gsaas_tempest_plugin.tests import base


class LeasesTest(base.BaseGpuSchedulingTest):
    """A program that needs a share of a GPU."""

    def used(self) -> dict[str, int]:
        """Return what the project uses of each limited resource."""
        limits = self.client.show_limits()["limits"]
        return {name: limit["used"] for name, limit in limits.items()}

    @decorators.attr(type=["smoke"])
    @decorators.idempotent_id("f5e2a961-ec38-4bf7-9c17-fda8538c523f")
    def test_a_lease_holds_its_share_until_it_is_terminated(self) -> None:
        before = self.used()
        lease = self.launch_program(cgpus=self.share(2))
        self.assertEqual([0, 1], [device["index"] for device in lease["devices"]])
        memory = [device["memory_mb"] for device in lease["devices"]]
        self.assertEqual([self.share()["memory_mb"]] * 2, memory)
        claimed = {"cgpus": 2, "gpu_memory_mb": sum(memory), "leases": 1}
        self.assertEqual({name: before[name] + claimed[name] for name in before}, self.used())

        environment = self.client.show_environment(lease["id"])["environment"]
        self.assertEqual(lease["id"], environment["GSAAS_LEASE"])

        self.client.delete_lease(lease["id"])
        ended = waiters.wait_for_lease_status(self.client, lease["id"], "RELEASED")
        self.assertIsNone(ended["fault"])
        self.assertEqual(before, self.used())

    @decorators.idempotent_id("24432e3f-6e72-49fc-a26c-26821690cad5")
    def test_a_lease_is_terminated_once(self) -> None:
        lease = self.launch_program()
        base.end(self.client, lease["id"])
        for _ in range(2):
            self.refusal(
                exceptions.NotFound,
                "gsaas.lease.released",
                self.client.delete_lease,
                lease["id"],
            )
        self.refusal(
            exceptions.Conflict,
            "gsaas.lease.holds-nothing",
            self.client.show_environment,
            lease["id"],
        )

    @decorators.idempotent_id("2d7ed7e9-4197-41cd-be43-7136582e66f5")
    def test_a_list_has_the_leases_of_the_project_and_no_released_ones(self) -> None:
        leases = [self.launch_program() for _ in range(3)]
        ids = [lease["id"] for lease in leases]

        def listed(**query: str | int) -> list[str]:
            found = self.client.list_leases(**query)["leases"]
            return [lease["id"] for lease in found if lease["id"] in ids]

        self.assertEqual(ids, listed())
        self.assertEqual(ids[1:2], listed(name=leases[1]["name"]))
        self.assertEqual(ids, listed(status="ACTIVE"))
        self.assertEqual([], listed(status="QUEUED"))
        self.assertEqual(ids[1:], listed(marker=ids[0], limit=2))

        base.end(self.client, ids[0])
        self.assertEqual(ids[1:], listed())
        self.assertEqual(ids[:1], listed(status="RELEASED", name=leases[0]["name"]))

    @decorators.idempotent_id("3056f8f6-74e7-4567-98c4-7845e86b6576")
    def test_a_lease_lasts_as_long_as_it_is_kept_alive(self) -> None:
        lease = self.launch_program(keepalive=3600)
        kept = self.client.keep_lease_alive(lease["id"])["lease"]
        self.assertEqual((lease["id"], "ACTIVE"), (kept["id"], kept["status"]))
        self.assertIsNotNone(kept["kept_until"])
        base.end(self.client, lease["id"])
        self.refusal(
            exceptions.NotFound,
            "gsaas.lease.released",
            self.client.keep_lease_alive,
            lease["id"],
        )
