# SPDX-License-Identifier: Apache-2.0
"""Keystone's roles: what a reader, a member and an administrator may do."""

from __future__ import annotations

from typing import Any

from tempest import config
from tempest.lib import decorators, exceptions

from gsaas_tempest_plugin.tests import base

CONF = config.CONF


class RolesTest(base.BaseGpuSchedulingTest):
    """Users with one role each. Those of one project share its leases."""

    credentials = ["project_member", "project_reader", "admin"]

    @classmethod
    def setup_credentials(cls) -> None:
        """Skip the class if the configured accounts have no reader."""
        if not cls._get_credentials_provider().is_role_available("reader"):
            raise cls.skipException("the configured accounts have none with the role reader")
        super().setup_credentials()

    @classmethod
    def setup_clients(cls) -> None:
        """Make a client of each role."""
        cls.os_primary = cls.os_project_member
        super().setup_clients()
        cls.reader = cls.client_of(cls.os_project_reader)
        cls.admin = cls.client_of(cls.os_admin)

    @decorators.idempotent_id("1a15e74d-47bf-46a3-acbb-46e0a75f9bfa")
    def test_a_reader_sees_leases_and_changes_nothing(self) -> None:
        lease = self.launch_program(keepalive=3600)
        self.assertEqual(lease["id"], self.reader.show_lease(lease["id"])["lease"]["id"])
        listed = self.reader.list_leases(name=lease["name"])["leases"]
        self.assertEqual([lease["id"]], [found["id"] for found in listed])
        for call, given in (
            (self.reader.delete_lease, (lease["id"],)),
            (self.reader.keep_lease_alive, (lease["id"],)),
            (self.reader.show_environment, (lease["id"],)),
        ):
            self.refusal(exceptions.Forbidden, "gsaas.forbidden", call, *given)
        self.assertEqual("ACTIVE", self.client.show_lease(lease["id"])["lease"]["status"])

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("11eebc34-e691-4852-9dc1-47396465f722")
    def test_a_reader_launches_nothing(self) -> None:
        before = self.reader.show_limits()["limits"]
        self.refusal(
            exceptions.Forbidden,
            "gsaas.forbidden",
            self.reader.create_lease,
            cgpus=self.share(),
            server=None,
        )
        self.assertEqual(before, self.reader.show_limits()["limits"])

    @decorators.idempotent_id("10e0958c-7a1a-4813-9e70-e1f3c190154a")
    def test_only_administrators_see_where_the_gpus_are(self) -> None:
        lease = self.launch_program()
        for client in (self.client, self.reader):
            for answer, rows in ((client.list_gpus(), "gpus"), (client.list_hosts(), "hosts")):
                self.assertLess(0, answer["totals"]["gpus"])
                self.assertEqual([], answer.get(rows, []))
            self.refusal(exceptions.Forbidden, "gsaas.forbidden", client.list_endpoints)
        (mine,) = self.client.show_lease(lease["id"])["lease"]["devices"]
        self.assertNotIn("gpu_host", mine)
        (device,) = self.admin.show_lease(lease["id"])["lease"]["devices"]
        (gpu,) = self.holders(lease["id"])
        self.assertEqual((gpu["uuid"], gpu["host"]), (device["gpu_uuid"], device["gpu_host"]))

    def holders(self, lease_id: str) -> list[Any]:
        """Return the GPUs of which a lease has a part, as administrators see them."""
        return [gpu for gpu in self.admin.list_gpus()["gpus"] if lease_id in gpu["leases"]]

    @decorators.idempotent_id("9efc84c7-7bdc-411a-ae39-7686b07a8f20")
    def test_an_administrator_ends_a_lease_of_any_project(self) -> None:
        lease = self.launch_program()
        listed = self.admin.list_leases(all_projects="true", name=lease["name"])["leases"]
        self.assertEqual([lease["id"]], [found["id"] for found in listed])
        base.end(self.admin, lease["id"])
        self.assertEqual("RELEASED", self.client.show_lease(lease["id"])["lease"]["status"])
        self.assertEqual([], self.holders(lease["id"]))

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("59d6708b-33ab-416d-9537-dc82d2e194b1")
    def test_a_member_may_not_overtake_others_in_the_queue(self) -> None:
        self.refusal(
            exceptions.Forbidden,
            "gsaas.forbidden",
            self.client.create_lease,
            cgpus=self.share(),
            server=None,
            wait=60,
            priority=1,
        )
