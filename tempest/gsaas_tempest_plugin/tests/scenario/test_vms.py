# SPDX-License-Identifier: Apache-2.0
"""A VM with cGPUs, from its launch to its release."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from tempest import config
from tempest.common import waiters as nova_waiters
from tempest.lib import decorators, exceptions

from gsaas_tempest_plugin.services import waiters
from gsaas_tempest_plugin.tests.scenario import base

CONF = config.CONF

OF_ADMINS = {"gpu_uuid", "gpu_host", "real_address"}
ADDRESS = re.compile(r"\b\d+\.\d+\.\d+\.\d+\b")


class VmTest(base.BaseVmTest):
    """A tenant launches a VM and ends it again."""

    credentials = ["primary", "admin"]

    @classmethod
    def setup_clients(cls) -> None:
        """Make the clients of the tenant and of an administrator."""
        super().setup_clients()
        cls.admin = cls.client_of(cls.os_admin)
        cls.servers = cls.os_primary.servers_client

    def check_masked(self, devices: list[Any]) -> set[str]:
        """Return the addresses of *devices*, which must be masked ones and all that a tenant learns of them."""
        for device in devices:
            self.assertEqual(set(), OF_ADMINS & device.keys())
        addresses = [device["masked_address"].partition(":")[0] for device in devices]
        prefix = IPv4Network(CONF.gpu_scheduling.masked_prefix)
        self.assertTrue(all(IPv4Address(address) in prefix for address in addresses), addresses)
        self.assertEqual(len(devices), len(set(addresses)))
        return set(addresses)

    @decorators.attr(type=["smoke"])
    @decorators.idempotent_id("ea14b8e3-66aa-4bd6-bcc6-73c6b874b43d")
    def test_a_vm_gets_cgpus_and_gives_them_back(self) -> None:
        before = self.client.show_limits()["limits"]
        launched = self.launch(cgpus=self.share(2), server=self.server("primary"))
        lease = launched["lease"]
        self.assertEqual((202, "CLAIMED"), (launched.response.status, lease["status"]))
        self.assertTrue(launched.response["location"].endswith(f"/v1/leases/{lease['id']}"))
        addresses = self.check_masked(lease["devices"])
        self.assertEqual(2, len(addresses))

        lease = waiters.wait_for_lease_status(self.client, lease["id"], "ACTIVE")
        self.assertEqual(addresses, self.check_masked(lease["devices"]))
        self.assertEqual(
            ["claim", "boot", "activate"], [event["event"] for event in lease["events"]]
        )
        self.assertIsNone(lease["fault"])
        server = self.servers.show_server(lease["server"]["id"])["server"]
        self.assertEqual((lease["name"], "ACTIVE"), (server["name"], server["status"]))
        (found,) = self.client.list_leases(server_id=server["id"])["leases"]
        self.assertEqual(lease["id"], found["id"])

        environment = self.client.show_environment(lease["id"])["environment"]
        self.assertEqual(addresses, set(ADDRESS.findall(" ".join(environment.values()))))
        placed = self.admin.show_lease(lease["id"])["lease"]
        for device in placed["devices"]:
            self.assertNotIn(device["gpu_uuid"], str(environment))
            self.assertNotIn(device["real_address"].partition(":")[0], str(environment))

        self.assertEqual(
            before["cgpus"]["used"] + 2, self.client.show_limits()["limits"]["cgpus"]["used"]
        )
        ending = self.client.delete_lease(lease["id"])["lease"]
        self.assertIn(ending["status"], ("RELEASING", "RELEASED"))
        waiters.wait_for_lease_status(self.client, lease["id"], "RELEASED")
        nova_waiters.wait_for_server_termination(self.servers, server["id"])
        self.assertEqual(before, self.client.show_limits()["limits"])
        holders = [gpu for gpu in self.admin.list_gpus()["gpus"] if lease["id"] in gpu["leases"]]
        self.assertEqual([], holders)
        self.refusal(
            exceptions.NotFound, "gsaas.lease.released", self.client.delete_lease, lease["id"]
        )
