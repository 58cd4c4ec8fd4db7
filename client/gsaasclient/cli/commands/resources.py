# SPDX-License-Identifier: Apache-2.0
"""The commands of `gsaas` about what there is and who uses it: GPUs, hosts, policies, quotas."""

from __future__ import annotations

from gsaasclient.cli.commands.options import OUTPUT, TIMES, service_options
from gsaasclient.cli.parser import CommandSpec, Handler, Help, Option, one_of
from gsaasclient.quantities import seconds
from gsaasclient.times import for_api

RESOURCES = (
    CommandSpec(
        "gpus",
        Help(
            "list the GPUs: their models, and for administrators each GPU",
            usage="gsaas gpus [-disable=UUID [-reason=TEXT] | -enable=UUID | -adopt=UUID [-host=HOST]]",
            example='gsaas gpus -disable=GPU-5b9f… -reason="ECC errors"',
            details="""
UUID is that of a GPU, or the beginning of it. -c prints what the table leaves out, such as index,
temperature_c and utilisation; gsaas top watches these.

A GPU belongs to the host that reported it first. If another host reports it, that is shown under
the table, and the GPU stays where it is until an administrator consents to its move. It can move
only while no lease uses it.""",
        ),
        Handler("gpus:gpus"),
        mistaken_names=("enable", "disable"),
        options=(
            *service_options("UUID"),
            Option("adopt", "UUID", "consent to the move of a GPU to another host"),
            Option("host", "HOST", "the host to which it moved; needed if several report it"),
        ),
    ),
    CommandSpec(
        "models",
        Help(
            "list the models of GPUs, and how much of each is free",
            usage="gsaas models [option ...]",
            example="gsaas models -f json",
            details="""
Counts the GPUs that a new lease may get. idle: those that nothing uses, for -mode=exclusive. MiB
free: what is left for shares of all of them; largest share: the most that one cGPU may have of it.""",
        ),
        Handler("models:models"),
        mistaken_names=("model", "flavors", "types"),
        options=OUTPUT,
    ),
    CommandSpec(
        "hosts",
        Help(
            "list the hosts: totals, and for administrators each host",
            usage="gsaas hosts [-drain=NAME | -disable=NAME | -enable=NAME | -forget=NAME] [option ...]",
            example='gsaas hosts -drain=gpu1 -by=18:00 -reason="new fans"',
            details="""
A host that is drained is disabled, and its leases move to other hosts: those without open
connections, and those with -movable=cut, at once; others when they have none, or when -by or -force
says that they are cut. Leases that cannot move stay, and are listed with the reason. With -wait it
returns when no lease is left, and prints meanwhile what each waits for. -enable ends a drain, and
returns the host to service; -disable ends it, and leaves the leases where they are.

Forget a host only when it is switched off and stays off. Leases that have claimed its GPUs end in
ERROR with a fault that states the reason; their VMs are not deleted. Leases whose VMs ran on the
host no longer wait for its endpoint to remove their bindings. A host whose agents have reported
recently is refused, unless -force is given.""",
        ),
        Handler("hosts:hosts"),
        mistaken_names=("hypervisor", "hypervisors", "enable", "disable"),
        options=(
            *service_options("NAME"),
            Option("drain", "NAME", "disable it, and move its leases to other hosts"),
            Option(
                "by",
                "TIME",
                "with -drain, when connections that are still open are cut, such as 18:00 or 'tomorrow 9:00'",
                convert=for_api,
            ),
            Option("wait", None, "with -drain, return when it has no lease any more"),
            Option("forget", "NAME", "remove a host that is gone for good"),
            Option(
                "force",
                None,
                "with -drain, cut open connections at once; with -forget, although its agents have reported recently",
            ),
        ),
    ),
    CommandSpec(
        "endpoints",
        Help(
            "list the RODVR endpoints of compute hosts (administrators)",
            usage="gsaas endpoints [HOST] [option ...]",
            example="gsaas endpoints compute1",
        ),
        Handler("endpoints:endpoints"),
        mistaken_names=("agent", "agents", "service", "services"),
        options=(Option("host", "HOST", "this host only"), *OUTPUT),
        positional="host",
    ),
    CommandSpec(
        "policies",
        Help(
            "list the policies by which GPUs are selected",
            usage="gsaas policies [option ...]",
            example="gsaas policies -f json",
        ),
        Handler("policies:policies"),
        options=OUTPUT,
    ),
    CommandSpec(
        "policy",
        Help(
            "show a policy, by default the default one, or set which is the default",
            usage="gsaas policy [NAME | -default=NAME | -reset]",
            example="gsaas policy -default=energy",
            details="""
A new default applies from the next request on, without a restart. Leases keep their GPUs.""",
        ),
        Handler("policies:policy"),
        options=(
            Option("name", "NAME", "the policy to show (default: the default policy)"),
            Option(
                "default",
                "NAME",
                "make it the policy of requests that name none (administrators)",
            ),
            Option("reset", None, "return to the configured default (administrators)"),
            *OUTPUT,
        ),
        positional="name",
    ),
    CommandSpec(
        "limits",
        Help(
            "list your project's quota, and how much of it is used",
            usage="gsaas limits [option ...]",
            example="gsaas limits -f json",
        ),
        Handler("limits:limits"),
        mistaken_names=("quota", "quotas", "absolute-limits"),
        options=OUTPUT,
    ),
    CommandSpec(
        "top",
        Help(
            "watch GPUs, leases and the queue",
            usage="gsaas top [-once] [-sort=ORDER] [-interval=DURATION]",
            example="gsaas top -sort=busy",
            details="""
Keys: q quits, p pauses, s changes the order; the arrows, j, k and the page keys scroll. In a memory
bar # is in use, - is claimed by leases and not in use, . is free. Administrators see every GPU and
the leases on it; a GPU is silent if its host has not reported in time. Other users see the totals,
and the leases of their project. gsaas gpus, gsaas list and gsaas queue print each table by itself,
in more formats.""",
        ),
        Handler("top.command:top", lends_terminal=True),
        options=(
            Option("once", None, "print the tables once, as is done without a terminal"),
            Option(
                "sort",
                "host|held|busy|temperature|power",
                "order of the GPUs (default: host)",
                convert=one_of("host", "held", "busy", "temperature", "power"),
                default="host",
            ),
            Option(
                "interval",
                "DURATION",
                "time between two updates, such as 10s (default: 2)",
                convert=seconds,
                default=2,
            ),
            Option(
                "f",
                "FORMAT",
                "output format: table (tables of GPUs, leases and the queue, default); json or yaml",
                convert=one_of("table", "json", "yaml"),
                aliases=("format",),
                mistaken_names=("o", "output"),
                default="table",
            ),
        ),
    ),
    CommandSpec(
        "usage",
        Help(
            "print GPU-hours, MiB-hours and costs by project",
            usage="gsaas usage [-start=TIME] [-end=TIME] [option ...]",
            example="gsaas usage -start=2026-10-01 -end=2026-11-01 -f csv",
            details=f"""
Shows your project; administrators see all projects. A lease counts from when its GPUs were claimed
until they are released, or until now. Costs are shown if the operator has prices; unpriced are
GPU-hours of models without one.

{TIMES}""",
        ),
        Handler("usage:usage"),
        options=(
            Option(
                "start",
                "TIME",
                "start of the period (default: start of this month, UTC)",
                convert=for_api,
            ),
            Option("end", "TIME", "end of the period (default: now)", convert=for_api),
            *OUTPUT,
        ),
    ),
)
