# SPDX-License-Identifier: Apache-2.0
"""VMs with cGPUs, and what they report from inside."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import re
import time
from collections.abc import Sequence
from ipaddress import IPv4Network
from typing import Any

from tempest import config
from tempest.lib import exceptions

from gsaas_tempest_plugin.services.gpu_scheduling_client import GpuSchedulingClient
from gsaas_tempest_plugin.tests import base

CONF = config.CONF

MARK = "GSAAS-REPORT"
REPORT = """\
#!/usr/bin/env python3
import base64, hashlib, json, socket, subprocess, time

def answers(address, patience):
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + patience
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(1)

listed = subprocess.run(["sh", "-lc", "env"], stdout=subprocess.PIPE, universal_newlines=True).stdout
report = {
    "environment": dict(line.split("=", 1) for line in listed.splitlines() if "=" in line),
    "answered": [address for address in %(own)r if answers(address, %(patience)d)]
    + [address for address in %(foreign)r if answers(address, 0)],
}
report = json.dumps(report).encode()
line = "\\n%%s %%s %%s\\n" %% ("%(mark)s", hashlib.sha256(report).hexdigest(), base64.b64encode(report).decode())
for _ in range(6):
    with open("/dev/console", "w") as console:
        console.write(line)
    time.sleep(5)
"""
"""User data: reports what a login shell finds in its environment, and which addresses answer. Several times, each with
a check sum, because other programs write to the console at the same time.
"""
PATIENCE = 60
"""Seconds for which a VM keeps asking its own addresses: it may be faster than its host."""


def masked_addresses(count: int) -> list[str]:
    """Return the first *count* masked addresses, which are those of a VM with so many cGPUs."""
    hosts = IPv4Network(CONF.gpu_scheduling.masked_prefix).hosts()
    port = CONF.gpu_scheduling.masked_port
    return [f"{next(hosts)}:{port}" for _ in range(count)]


class BaseVmTest(base.BaseGpuSchedulingTest):
    """A test that boots VMs in networks of its own."""

    @classmethod
    def skip_checks(cls) -> None:
        """Skip the class where no VM can be booted."""
        super().skip_checks()
        if not CONF.service_available.nova:
            raise cls.skipException("Nova is not available: [service_available]nova is false")

    @classmethod
    def setup_credentials(cls) -> None:
        """Get the users, each with a network whose router answers."""
        cls.set_network_resources(network=True, subnet=True, router=True, dhcp=True)
        # Not the parent's, which asks for no network.
        super(base.BaseGpuSchedulingTest, cls).setup_credentials()

    @classmethod
    def network(cls, credentials: str) -> Any:
        """Return a network of the user *credentials*: one of its project, or else the one that the users share."""
        manager = cls.get_client_manager(credential_type=credentials)
        # Tempest's own method finds the network of the primary user, whichever credentials it is given.
        listed = manager.networks_client.list_networks(project_id=manager.credentials.project_id)
        own = [network for network in listed["networks"] if not network.get("router:external")]
        if credentials == "primary" or not own:
            return cls.get_tenant_network(credentials_type=credentials)
        return own[0]

    @classmethod
    def server(cls, credentials: str, user_data: str = "") -> dict[str, Any]:
        """Return Nova's fields of a server in the network of the user *credentials*."""
        options = CONF.gpu_scheduling
        server: dict[str, Any] = {
            "imageRef": options.image_ref or CONF.compute.image_ref,
            "flavorRef": options.flavor_ref or CONF.compute.flavor_ref,
        }
        network = cls.network(credentials)
        if network and network.get("id"):
            server["networks"] = [{"uuid": network["id"]}]
        if user_data:
            server["user_data"] = base64.b64encode(user_data.encode()).decode()
        return server


class BaseGuestTest(BaseVmTest):
    """A test that reads what VMs report."""

    @classmethod
    def skip_checks(cls) -> None:
        """Skip the class if the image cannot report."""
        super().skip_checks()
        if not CONF.gpu_scheduling.guest_reports:
            raise cls.skipException(
                "the image does not report what is in the VM: [gpu_scheduling]guest_reports"
            )
        if not CONF.compute_feature_enabled.console_output:
            raise cls.skipException(
                "Nova shows no console: [compute-feature-enabled]console_output"
            )

    @classmethod
    def launch_reporting(
        cls,
        client: GpuSchedulingClient,
        credentials: str,
        cgpus: dict[str, Any],
        foreign: Sequence[str],
    ) -> Any:
        """Return the lease of a new VM that asks its own addresses and *foreign* ones; it ends with the class."""
        program = REPORT % {
            "own": masked_addresses(cgpus["count"]),
            "foreign": list(foreign),
            "patience": PATIENCE,
            "mark": MARK,
        }
        server = cls.server(credentials, program)
        name = cls.name()
        cls.addClassResourceCleanup(base.end_named, client, name)
        return client.create_lease(name=name, cgpus=cgpus, server=server)["lease"]

    @staticmethod
    def report(servers_client: Any, server_id: str) -> Any:
        """Return what a VM has reported; `TimeoutException` after [gpu_scheduling]guest_timeout."""
        deadline = time.monotonic() + CONF.gpu_scheduling.guest_timeout
        while True:
            console = servers_client.get_console_output(server_id)["output"].replace("\r", "")
            for checksum, encoded in re.findall(rf"^{MARK} (\S+) (\S+)$", console, re.MULTILINE):
                with contextlib.suppress(binascii.Error):
                    report = base64.b64decode(encoded, validate=True)
                    if hashlib.sha256(report).hexdigest() == checksum:
                        return json.loads(report)
            if time.monotonic() >= deadline:
                raise exceptions.TimeoutException(
                    f"VM {server_id} has not reported; its console ends with: {console[-500:]}"
                )
            time.sleep(CONF.gpu_scheduling.build_interval)
