# SPDX-License-Identifier: Apache-2.0
"""[gpu_network]: the network between compute hosts and GPU hosts."""

from __future__ import annotations

from oslo_config import cfg, types

GROUP = cfg.OptGroup("gpu_network", title="The network between compute hosts and GPU hosts")

OPTS: list[cfg.Opt] = [
    cfg.ListOpt(
        "prefixes",
        item_type=types.String(regex=r"^\d{1,3}(\.\d{1,3}){3}/\d{1,2}$", max_length=18),
        default=[],
        help="IPv4 networks that contain the addresses of all GPU hosts and compute hosts on the GPU network: "
        "`192.0.2.0/24`, or several with commas between them. The same on controllers and on every compute host. "
        "The engine believes no report that names another address, and RODVR translates no masked address to another "
        "one. If unset, the engine refuses only addresses that no host can have in such a network (loopback, "
        "link-local, multicast and reserved ones), and RODVR allows the networks of gpu_device and those "
        "that the host has routes to through it, except a default route. Too small a network keeps GPU hosts out of "
        "service, too large a one lets a GPU host that an attacker controls send VMs to other machines.",
    ),
    cfg.DictOpt(
        "hosts",
        default={},
        help="On controllers: the addresses of hosts on the GPU network, `gpu1:192.0.2.11,compute1:192.0.2.21`. A host "
        "that is named here is believed with this address only, and no other host is believed with it. A host that is "
        "not named has the address that it reports first. With all hosts named, no host can take the address of one "
        "that has not reported yet; each new host then has to be added here, and engines restarted.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this section with *conf*."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options of this section by group, for oslo.config's generator of sample files."""
    return {GROUP: OPTS}
