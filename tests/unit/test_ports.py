# SPDX-License-Identifier: Apache-2.0
"""Ports of the tests' servers: no fence of a GPU host guards one, whatever middleware its daemons belong to."""

from __future__ import annotations

from oslo_config import cfg

from gsaas.conf import daemons
from gsaas.objects.ports import PortRange
from gsaas.remoting.lupine import Lupine
from gsaas.remoting.rcuda import Rcuda
from tests.support.ports import free_ports

MOST_GPUS = 16
"""Of one host. The daemon of each listens one port further than that of the GPU before."""


def test_servers_of_tests_listen_where_no_daemon_does():
    conf = cfg.ConfigOpts()
    conf.register_opts(daemons.OPTS, daemons.GROUP)
    leases = PortRange.parse(conf.daemons.lease_ports)
    guarded = set(range(leases.first, leases.last + 1))
    for driver in (Rcuda, Lupine):
        guarded.update(range(driver.default_port, driver.default_port + MOST_GPUS))
    drawn = {port for _ in range(300) for port in free_ports(3)}
    assert not drawn & guarded
