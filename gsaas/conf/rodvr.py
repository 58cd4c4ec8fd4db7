# SPDX-License-Identifier: Apache-2.0
"""[rodvr]: the datapath endpoint of a compute host."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("rodvr", title="RODVR, the endpoint on a compute host")

OPTS = [
    cfg.StrOpt(
        "masked_prefix",
        default="169.254.71.0/24",
        help="IPv4 network in which VMs see their cGPUs: the first is at its first address. The same on "
        "controllers and on every compute host. Its size limits the cGPUs of one VM; it must not "
        "contain 169.254.169.254 (Nova's metadata) or anything else that VMs have to reach. VMs keep the "
        "addresses they were created with, so change it only on a cloud without leases.",
    ),
    cfg.StrOpt(
        "local_prefix",
        default="169.254.72.0/21",
        help="IPv4 network in which programs of a compute host itself see the cGPUs of leases without a VM. "
        "The same on controllers and on every compute host. Its size limits the cGPUs that all such leases "
        "of one host can have together: /21 allows 2,046. It must not overlap with masked_prefix, contain "
        "169.254.169.254, or be used by anything else on compute hosts. Change it only on a cloud without "
        "such leases.",
    ),
    cfg.IntOpt(
        "local_per_project",
        default=256,
        min=-1,
        help="Most addresses of local_prefix that the leases of one project may have on one host, one for each cGPU; "
        "-1 means no limit. Controllers read it. With a large value, one project can take all of them; a "
        "small one limits the cGPUs of a program on a compute host.",
    ),
    cfg.StrOpt(
        "gpu_device",
        default="gpu0",
        help="Network interface of this host that reaches the GPU network. RODVR enables forwarding on it, for "
        "its own packets only. With a wrong name, no VM of this host reaches its GPUs, and the "
        "endpoint reports it.",
    ),
    cfg.StrOpt(
        "identity_network",
        default="240.71.0.0/16",
        help="IPv4 network from which every VM port gets a node-local address. It never leaves the "
        "host, so all hosts may use the same; it must not be used by anything else here. Its size "
        "limits the VM ports of one host: /16 allows 65,534, /24 allows 254. Changing it rebuilds "
        "the datapath and ends all connections.",
    ),
    cfg.IntOpt(
        "connections_per_vm",
        default=4096,
        min=0,
        max=65535,
        help="Most connections that one VM may have to daemons at a time; more are refused. They fill the table of "
        "connections that all VMs of the host share (net.netfilter.nf_conntrack_max, often 262,144). With a "
        "small value, VMs with many cGPUs fail; 0 means no limit, and one VM can then end the connections of all. "
        "Changing it rebuilds the datapath; connections go on, and those that exist are not counted.",
    ),
    cfg.IntOpt(
        "connections_per_daemon",
        default=64,
        min=0,
        max=65535,
        help="Most connections that one VM may have to one daemon at a time; more are refused. Every process of the VM "
        "that uses the GPU has one or more. Keep it below [daemons]connections_per_source of GPU hosts divided by "
        "the VMs of one compute host that may share a GPU: that limit counts the compute host as a whole, and a VM "
        "that may reach it alone locks the others out. 0 means no limit.",
    ),
    cfg.IntOpt(
        "new_connections_per_second",
        default=100,
        min=0,
        max=1_000_000,
        help="New connections that one VM may open per second on average; it may open those of ten seconds at once. "
        "What is beyond is dropped, and TCP tries again after a second. A closed connection takes an entry in the "
        "table of connections and a port of the host for two minutes more. With a small value, programs that "
        "start many processes start slowly; 0 means no limit.",
    ),
    cfg.FloatOpt(
        "conntrack_threshold",
        default=0.8,
        min=0.0,
        max=1.0,
        help="Part of the host's table of connections (net.netfilter.nf_conntrack_max) that may be taken before the "
        "endpoint reports a problem. When the table is full, nothing on the host can open connections. At 1 it is "
        "never reported; with small values, usual load is.",
    ),
    cfg.FloatOpt(
        "audit_interval",
        default=30.0,
        min=1.0,
        help="Seconds between two comparisons of the kernel with what it should contain. New and "
        "restarted VMs do not wait for it, they are noticed at once; it only limits how long a change by "
        "another program stays in force. Small values cost a little CPU time, with very large ones "
        "damage stays unnoticed.",
    ),
    cfg.FloatOpt(
        "retry_interval",
        default=5.0,
        min=0.1,
        help="Seconds to wait after the kernel refused something, before trying again. Small values "
        "fill the log while the cause persists, with large ones a VM waits longer once it is removed.",
    ),
    cfg.FloatOpt(
        "grace",
        deprecated_name="farewell",
        default=60.0,
        min=0.0,
        help="Seconds for which a VM whose binding was removed still has its masked addresses "
        "answered with a reset. At 0, programs with open connections wait for a time-out instead "
        "of failing at once; with large values the tap keeps its chain that much longer. It ends early when "
        "the tap disappears.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this section with *conf*."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options of this section by group, for oslo.config's generator of sample files."""
    return {GROUP: OPTS}
