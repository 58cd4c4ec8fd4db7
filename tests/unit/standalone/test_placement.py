# SPDX-License-Identifier: Apache-2.0
"""gsaas-standalone's choice of a host for a server."""

from __future__ import annotations

import pytest

from gsaas.exceptions import ServerRefused
from gsaas.gpu_host.inventory import DEFAULT
from gsaas.standalone.cloud import choose_host

HOSTS = DEFAULT.compute_hosts


@pytest.mark.parametrize(
    ("vms", "wanted", "avoid", "host"),
    [
        ([], None, [], "compute1"),
        (["compute1"], None, [], "gpu1"),
        (["compute1", "gpu1"], None, [], "gpu2"),
        (["compute1", "gpu1", "gpu2"], None, [], "compute1"),
        ([], None, ["compute1"], "gpu1"),
        ([], None, ["compute1", "gpu1"], "gpu2"),
        (["gpu1", "gpu1"], "gpu1", [], "gpu1"),
    ],
)
def test_a_server_gets_the_allowed_host_with_the_fewest_vms(vms, wanted, avoid, host):
    assert choose_host(HOSTS, vms, wanted, avoid) == host


@pytest.mark.parametrize(
    ("wanted", "avoid"),
    [("nowhere", []), (None, ["gpu1", "gpu2", "compute1"]), ("gpu1", ["gpu1"])],
)
def test_a_server_without_an_allowed_host_is_refused(wanted, avoid):
    with pytest.raises(ServerRefused):
        choose_host(HOSTS, [], wanted, avoid)
