# SPDX-License-Identifier: Apache-2.0
"""`gsaas-rodvr`: the RODVR endpoint of a compute host. The only privilege that it needs is CAP_NET_ADMIN."""

from __future__ import annotations

import functools
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from oslo_config import cfg

from gsaas import reports, rpc, service
from gsaas.objects.gpu_network import GpuNetwork
from gsaas.rodvr.config import DatapathConfig, Periods
from gsaas.rodvr.endpoint import Endpoint
from gsaas.rodvr.service import EndpointService

DESCRIPTION = """\
Connect the VMs of this compute host to their cGPUs: keep its nftables as GSaaS wants them. Stopping it, or an
update of it, interrupts nothing.
"""
CLEAN = cfg.BoolOpt(
    "clean",
    default=False,
    help="Remove from the kernel all that gsaas-rodvr ever made, and exit. All VMs of this host lose their GPUs.",
)
CAP_NET_ADMIN = 12
"""The number of the capability, from linux/capability.h."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the endpoint until a signal stops it; returns its exit status."""
    return service.run("gsaas-rodvr", DESCRIPTION, start, argv, cli=[CLEAN])


def start(conf: cfg.ConfigOpts, parts: ExitStack) -> None:
    """Start the endpoint of this host, or with `--clean` remove everything and exit.

    What has to be stopped at the end is added to *parts*. Raises `service.Unstartable` without CAP_NET_ADMIN,
    with an invalid configuration, without the GPU NIC, or if the tables to remove belong to another endpoint.
    """
    options = conf.rodvr
    if not _may_administer_networks():
        raise service.Unstartable(
            "programming nftables needs CAP_NET_ADMIN: run it as root, or grant it that capability"
        )
    try:
        make = functools.partial(
            Endpoint,
            service.host_name(conf),
            DatapathConfig.of(options, options.gpu_device),
            gpu_network=GpuNetwork.of(conf.gpu_network.prefixes),
            periods=Periods.of(options),
        )
    except ValueError as error:
        raise service.Unstartable(
            f"the sections [rodvr] and [gpu_network] cannot be used: {error}"
        ) from error
    if conf.clean:
        _clean(make())
        sys.exit(0)
    if options.gpu_device not in (name for _, name in socket.if_nameindex()):
        raise service.Unstartable(
            f"there is no interface {options.gpu_device}, which is to reach the GPU network; "
            "set gpu_device in the section [rodvr]"
        )
    bus = service.bus(conf, rpc.RODVR)
    parts.callback(bus.cleanup)
    endpoint_service = EndpointService(
        bus,
        service.host_name(conf),
        lambda on_installed: make(on_installed=on_installed),
        report_interval=options.audit_interval,
    )
    endpoint_service.start()
    reports.add_section("RODVR endpoint", endpoint_service.describe)
    parts.callback(endpoint_service.stop)


def _clean(endpoint: Endpoint) -> None:
    try:
        endpoint.teardown()
    except OSError as error:
        raise service.Unstartable(
            f"the kernel refuses to remove everything ({error}): stop gsaas-rodvr, if it runs, and try again"
        ) from error


def _may_administer_networks() -> bool:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> CAP_NET_ADMIN & 1)


if __name__ == "__main__":
    sys.exit(main())
