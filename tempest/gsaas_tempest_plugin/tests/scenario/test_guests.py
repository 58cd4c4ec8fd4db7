# SPDX-License-Identifier: Apache-2.0
"""What VMs reach, as they report it themselves: their own cGPUs, and nobody else's."""

from __future__ import annotations

from tempest import config
from tempest.lib import decorators

from gsaas_tempest_plugin.services import waiters
from gsaas_tempest_plugin.tests.scenario import base

CONF = config.CONF


class GuestsTest(base.BaseGuestTest):
    """Two VMs of two projects. The first one has two cGPUs, the second one has one."""

    credentials = ["primary", "alt", "admin"]

    @classmethod
    def setup_clients(cls) -> None:
        """Make the clients of both tenants and of an administrator."""
        super().setup_clients()
        cls.stranger = cls.client_of(cls.os_alt)
        cls.admin = cls.client_of(cls.os_admin)

    @classmethod
    def resource_setup(cls) -> None:
        """Boot both VMs at the same time, and wait for their reports."""
        super().resource_setup()
        cls.addresses = base.masked_addresses(3)
        first = cls.launch_reporting(cls.client, "primary", cls.share(2), cls.addresses[2:])
        placed = cls.admin.show_lease(first["id"])["lease"]
        cls.real_addresses = [device["real_address"] for device in placed["devices"]]
        second = cls.launch_reporting(
            cls.stranger, "alt", cls.share(1), [*cls.addresses[1:], *cls.real_addresses]
        )
        cls.first = waiters.wait_for_lease_status(cls.client, first["id"], "ACTIVE")
        cls.second = waiters.wait_for_lease_status(cls.stranger, second["id"], "ACTIVE")
        cls.report_of_first = cls.report(cls.os_primary.servers_client, cls.first["server"]["id"])
        cls.report_of_second = cls.report(cls.os_alt.servers_client, cls.second["server"]["id"])

    @decorators.idempotent_id("491b13e9-ec81-43a9-b524-f405fa2e4b31")
    @decorators.attr(type=["slow"])
    def test_a_login_shell_has_the_environment_of_the_lease(self) -> None:
        for client, lease, report in (
            (self.client, self.first, self.report_of_first),
            (self.stranger, self.second, self.report_of_second),
        ):
            wanted = client.show_environment(lease["id"])["environment"]
            found = {name: report["environment"].get(name) for name in wanted}
            self.assertEqual(wanted, found)
            for address in self.real_addresses:
                self.assertNotIn(address.partition(":")[0], str(report["environment"]))

    @decorators.idempotent_id("f8eb6264-2832-444a-9a08-985fdf7bb17c")
    @decorators.attr(type=["slow"])
    def test_the_masked_addresses_of_a_vm_answer_and_no_others(self) -> None:
        given = [device["masked_address"] for device in self.first["devices"]]
        self.assertEqual(self.addresses[:2], given)
        self.assertEqual(given, self.report_of_first["answered"])

    @decorators.idempotent_id("f6f15c07-345e-4f80-9409-6702d275abbe")
    @decorators.attr(type=["slow"])
    def test_a_vm_of_another_project_reaches_its_own_cgpu_and_none_of_the_first_ones(self) -> None:
        given = [device["masked_address"] for device in self.second["devices"]]
        self.assertEqual(self.addresses[:1], given)
        self.assertEqual(2, len(self.real_addresses))
        self.assertEqual(given, self.report_of_second["answered"])
