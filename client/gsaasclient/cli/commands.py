# SPDX-License-Identifier: Apache-2.0
"""The commands of `gsaas` and their options, in the order of the help.

Each command names its handler as `module:function` of this package; the module is imported when the command is run.
"""

from __future__ import annotations

from gsaasclient.cli.exit_statuses import RUN_FAILED
from gsaasclient.cli.parser import FOREVER, CommandSpec, Option, any_number, one_of, whole_number

FORMATS = ("table", "json", "csv", "value", "yaml")
FORMAT = Option(
    "f",
    "FORMAT",
    "output format: table (default); json or yaml, the API's own answer; csv, with a heading line; "
    "value, the values alone",
    convert=one_of(*FORMATS),
    aliases=("format",),
    mistaken_names=("o", "output"),
    default="table",
)
COLUMN = Option(
    "c",
    "COLUMN",
    "print this column only, in any format; repeat it for several, in the order wanted",
    aliases=("column",),
    mistaken_names=("columns",),
    repeatable=True,
)
OUTPUT = (FORMAT, COLUMN)


NOWAIT = Option("nowait", None, "return at once; gsaas show prints the status")
REASON = Option("reason", "TEXT", "why it is disabled, for other operators to read")
LEASE_NAME = Option("name", "NAME", "a name for the lease")

CGPUS = (
    Option("ncgpus", "N", "number of cGPUs", convert=whole_number),
    Option(
        "mode",
        "exclusive|shared",
        "exclusive (default): each cGPU is a whole GPU that no other lease uses; shared: each is a "
        "part of a GPU's memory",
        convert=one_of("exclusive", "shared"),
        default="exclusive",
    ),
    Option(
        "poolmem",
        "MIB",
        "MiB of GPU memory per cGPU; required with -mode=shared, and valid only with it",
        convert=whole_number,
    ),
    Option(
        "locality",
        "any|local|remote",
        "any (default): the cloud chooses the VM's host; local: the host that owns all its GPUs; "
        "remote: a host that owns none of them",
        convert=one_of("any", "local", "remote"),
        default="any",
    ),
    Option("policy", "NAME", "policy by which GPUs are selected; gsaas policies lists them"),
    Option("model", "TEXT", "only GPUs whose model contains this text, such as A100"),
    Option("capability", "X.Y", "only GPUs of at least this CUDA compute capability, such as 8.0"),
    Option(
        "hosts",
        "any|one|spread",
        "any (default): on any GPU hosts; one: all on one GPU host; spread: each on another GPU host",
        convert=one_of("any", "one", "spread"),
        default="any",
    ),
    Option("host", "NAME", "only GPUs of this GPU host"),
)

QUEUE = (
    Option(
        "wait",
        "SECONDS",
        "if the request does not fit now, wait in the queue until it does, for at most SECONDS if given",
        convert=whole_number,
        bare_value=FOREVER,
    ),
    Option(
        "priority",
        "N",
        "priority in the queue (default: 0); a lower one is served later, one above 0 earlier "
        "(administrators)",
        convert=any_number,
    ),
)

RESERVATION = Option(
    "reservation",
    "ID",
    "launch in this reservation of your project: its id; gsaas reservations lists them",
)

SERVER = (
    Option("image", "IMAGE", "image that the VM boots from: its name or id"),
    Option("flavor", "FLAVOR", "flavor of the VM: its name or id"),
    Option(
        "network",
        "NETWORK",
        "network to attach: its name or id; may be repeated",
        mistaken_names=("nic", "net-id"),
        repeatable=True,
    ),
    Option("name", "NAME", "a name for the lease and its VM"),
    Option("key", "NAME", "key pair for logging in", mistaken_names=("key-name", "keypair")),
    Option("userdata", "FILE", "cloud-init user data for the VM; GSaaS adds a part of its own"),
)


CONSUMER = (
    Option(
        "on",
        "HOST",
        "the host whose programs use the cGPUs, by its name in GSaaS (default: this host)",
    ),
    Option(
        "uid",
        "UID|any",
        "the user who alone can use masked addresses (default: you)",
        convert=lambda value: _user_id(value),
    ),
)


def _user_id(value: str) -> int | str:
    # Imported here: the handler's module must not be loaded for help.
    from gsaasclient.cli.alloc import user_id

    return user_id(value)


def sort_key(value: str) -> tuple[str, str]:
    """Convert to a key and a direction, `asc` or `desc`. Raises `ValueError`."""
    key, _, direction = value.partition(":")
    if direction not in ("", "asc", "desc"):
        raise ValueError(f"has the direction asc or desc, not '{direction}'")
    return key, direction or "asc"


def sort(rows: str, default: str) -> Option:
    """Return the option that orders a list of *rows*, which is ordered by *default* without it."""
    return Option(
        "sort",
        "KEY[:asc|desc]",
        f"order of the {rows}, such as {default}:desc (default: {default}); repeat it to order {rows} that are equal "
        "in the first key",
        convert=sort_key,
        mistaken_names=("sort-key", "sort_key"),
        repeatable=True,
    )


def seconds_or_default(value: str) -> int | str:
    """Convert to a number of seconds, or return `default`. Raises `ValueError`."""
    return value if value == "default" else whole_number(value)


def lease_id(description: str) -> Option:
    """Return the option `-id`."""
    return Option("id", "ID", f"{description}: a lease's id, its VM's id, or its name")


def service_options(noun: str) -> tuple[Option, ...]:
    """Return the options with which an operator takes a GPU or host out of service."""
    return (
        Option("disable", noun, "offer it to no more leases; those that have claimed it keep it"),
        Option("enable", noun, "offer it again"),
        REASON,
        *OUTPUT,
    )


COMMANDS = {
    command.name: command
    for command in (
        CommandSpec(
            "launch",
            "launch a VM with cGPUs (or -l)",
            handler="leases:launch",
            action="l",
            mistaken_names=("create", "boot", "new", "server"),
            usage="gsaas -l -ncgpus=N [option ...]",
            example="gsaas -l -ncgpus=2 -poolmem=2048 -mode=shared -name=training",
            options=(*CGPUS, *SERVER, *QUEUE, RESERVATION, NOWAIT, *OUTPUT),
            details="""
Returns when the VM is active and its cGPUs are connected, or at once with -nowait. If the cloud
cannot provide the cGPUs, nothing is launched; the message states why and which request would fit.
With -wait the request then waits in the queue. Ctrl-C gives up its place; with -wait -nowait the
place is kept without a client.""",
        ),
        CommandSpec(
            "terminate",
            "end a lease and destroy its VM (or -t)",
            handler="leases:terminate",
            action="t",
            mistaken_names=("delete", "remove", "rm", "stop", "end", "destroy", "kill", "cancel"),
            usage="gsaas -t -id=ID [option ...]",
            example="gsaas -t -id=training",
            options=(lease_id("the lease to end"), NOWAIT, *OUTPUT),
            positional="id",
        ),
        CommandSpec(
            "alloc",
            "take cGPUs without a VM, for programs on an existing host",
            handler="alloc:alloc",
            mistaken_names=("allocate", "claim", "acquire"),
            usage="gsaas alloc -ncgpus=N [option ...]",
            example="gsaas alloc -ncgpus=2 -poolmem=1024 -mode=shared",
            options=(
                *CGPUS,
                *CONSUMER,
                LEASE_NAME,
                Option(
                    "while",
                    "PID",
                    "keep the cGPUs until this process ends, such as $$, the shell; then release them",
                    convert=whole_number,
                ),
                *QUEUE,
                RESERVATION,
                *OUTPUT,
            ),
            details="""
Prints lines for a shell to evaluate: the addresses of the cGPUs, and GSAAS_LEASE, which gsaas
release reads; with -f or -c, it prints the lease instead. Standard output has nothing else, so
evaluating it after a failure has no effect:

  gpus=$(gsaas alloc -ncgpus=1) && eval "$gpus"

With -while=$$ they are released when the shell ends, or this host is switched off: a process in
the background keeps the lease alive until then. Otherwise they are yours until gsaas release.

Programs that do not share the network of this host, such as those in most containers, cannot use
masked addresses of the host.""",
        ),
        CommandSpec(
            "release",
            "release the cGPUs that gsaas alloc took",
            handler="alloc:release",
            mistaken_names=("delete", "remove", "rm", "free", "deallocate"),
            usage="gsaas release [-id=ID]",
            example="gsaas release -id=$GSAAS_LEASE",
            options=(lease_id("the lease to end (default: $GSAAS_LEASE)"), NOWAIT, *OUTPUT),
            positional="id",
        ),
        CommandSpec(
            "redeem",
            "show a lease's grant, so that its GPU hosts admit this host",
            handler="alloc:redeem",
            offline=True,
            usage="gsaas redeem",
            example="gsaas redeem",
            details="""
gsaas alloc does this itself. It is needed for a lease that was taken on another host (gsaas alloc
-on=…) or by a program: evaluate its environment here, then redeem its grant, once.""",
        ),
        CommandSpec(
            "list",
            "list your leases",
            handler="leases:list_all",
            mistaken_names=("ls", "ps", "lease", "leases", "server", "servers"),
            usage="gsaas list [option ...]",
            example="gsaas list -status=ACTIVE -c=name -c=cgpus",
            options=(
                Option(
                    "status", "STATUS", "only leases in this status; required for RELEASED ones"
                ),
                Option("name", "NAME", "only leases with this name"),
                Option(
                    "all",
                    None,
                    "leases of all projects (administrators)",
                    mistaken_names=("all-projects", "a"),
                ),
                sort("leases", "created_at"),
                Option(
                    "changes-since",
                    "TIME",
                    "only leases that have changed since TIME, RELEASED ones included",
                    mistaken_names=("changes_since", "since"),
                ),
                *OUTPUT,
            ),
            details="""
A TIME is a date, which stands for its midnight, or such as 2026-10-01T12:00:00Z, in UTC unless it
has an offset. -sort accepts id, name, status, project_id, user_id, created_at, updated_at,
released_at, queued_at, wait_until, kept_until, priority, count, mode, memory_mb, locality, policy,
access, server_id and, for administrators, server_host.

Besides the columns of the table, -c accepts project_id, mode, locality, policy, server_host,
consumer_host, position, degraded, fault and created_at.""",
        ),
        CommandSpec(
            "show",
            "show a lease and its events",
            handler="leases:show",
            mistaken_names=("get", "info", "describe", "lease", "events"),
            usage="gsaas show ID [option ...]",
            example="gsaas show training",
            options=(lease_id("the lease to show"), *OUTPUT),
            positional="id",
        ),
        CommandSpec(
            "env",
            "print the environment that programs need to find their cGPUs",
            handler="leases:env",
            usage="gsaas env ID [-shell|-dotenv|-json | -f=FORMAT]",
            example='eval "$(gsaas env training)"',
            options=(
                lease_id("the lease"),
                Option(
                    "shell",
                    None,
                    "lines for a shell to evaluate (default, unless -f or -c is given)",
                ),
                Option("dotenv", None, "lines for an env file"),
                Option("json", None, "a JSON object"),
                *OUTPUT,
            ),
            positional="id",
            details="""
In a VM that GSaaS launched, cloud-init has set these variables already.""",
        ),
        CommandSpec(
            "exec",
            "run a command inside a lease's VM",
            handler="exec:run",
            mistaken_names=("ssh", "shell", "console"),
            usage="gsaas exec ID -- COMMAND [ARGUMENT ...]",
            example="gsaas exec training -- ip route",
            options=(lease_id("the lease of the VM"),),
            positional="id",
            takes_command=True,
            details="""
With gsaas-standalone only, where a VM is a network namespace of this machine; requires root. The
command gets the lease's environment; the exit status is that of the command.""",
        ),
        CommandSpec(
            "run",
            "take cGPUs, run a command with them, and release them",
            handler="run:run",
            usage="gsaas run -ncgpus=N [option ...] -- COMMAND [ARGUMENT ...]",
            example="gsaas run -ncgpus=1 -poolmem=1024 -mode=shared -- ./app",
            options=(*CGPUS, *CONSUMER, LEASE_NAME, *QUEUE, RESERVATION),
            takes_command=True,
            failure_status=RUN_FAILED,
            details="""
The command gets the environment that gsaas alloc prints. The cGPUs are released when it ends, in
whatever way. Signals sent to gsaas run are forwarded to the command. If gsaas run itself is killed,
the command is killed too, and the cGPUs are released about a minute later.

The exit status is the command's own, or 128 plus the number of the signal that ended it, or

    2  the command line is not valid       125  GSaaS failed, or refused for another reason
    3  the request does not fit now        126  the command cannot be run
    4  the request can never fit           127  the command does not exist
  130  interrupted before the command began""",
        ),
        CommandSpec(
            "queue",
            "list the requests that wait for cGPUs, with estimates",
            handler="queue:queue",
            usage="gsaas queue [option ...]",
            example="gsaas queue -f json",
            options=OUTPUT,
            details="""
Shows how many requests wait, and those of your project; administrators see those of all projects.
A request waits if it was made with -wait; gsaas -t -id=ID gives up its place.""",
        ),
        CommandSpec(
            "reserve",
            "reserve cGPUs for a time to come",
            handler="reservations:reserve",
            mistaken_names=("reservation", "book"),
            usage="gsaas reserve -ncgpus=N -end=TIME [-start=TIME] [option ...]",
            example="gsaas reserve -ncgpus=4 -start=2040-01-31T09:00:00Z -end=2040-01-31T17:00:00Z",
            options=(
                *(option for option in CGPUS if option.name not in ("locality", "policy")),
                Option("start", "TIME", "its beginning (default: now)"),
                Option("end", "TIME", "its end", mistaken_names=("until",)),
                Option("name", "NAME", "a name for the reservation"),
                *OUTPUT,
            ),
            details="""
A TIME is a date, which stands for its midnight, or such as 2040-01-31T12:00:00Z, in UTC unless it
has an offset. Between start and end, gsaas -l -reservation=ID launches in the reservation.""",
        ),
        CommandSpec(
            "reservations",
            "list your reservations",
            handler="reservations:reservations",
            usage="gsaas reservations [option ...]",
            example="gsaas reservations",
            details="""
-sort accepts id, name, status, project_id, user_id, created_at, start and end.""",
            options=(
                Option("status", "STATUS", "only those in this status; required for ENDED ones"),
                sort("reservations", "start"),
                Option(
                    "all",
                    None,
                    "reservations of all projects (administrators)",
                    mistaken_names=("all-projects", "a"),
                ),
                *OUTPUT,
            ),
        ),
        CommandSpec(
            "unreserve",
            "cancel a reservation; leases that were launched in it go on",
            handler="reservations:unreserve",
            usage="gsaas unreserve ID [option ...]",
            example="gsaas unreserve 5b0fd3b0-2f53-4b9c-8f5e-5a2c1a0e7c11",
            options=(Option("id", "ID", "the reservation to cancel: its id"), *OUTPUT),
            positional="id",
        ),
        CommandSpec(
            "check",
            "check whether a request would fit, without launching anything",
            handler="checks:check",
            usage="gsaas check -ncgpus=N [option ...]",
            example="gsaas check -ncgpus=8 -poolmem=4096 -mode=shared -locality=local",
            options=(
                *CGPUS,
                Option("on", "HOST", "without a VM: the host whose programs would use the cGPUs"),
                Option(
                    "reservation",
                    "ID",
                    "in this reservation of your project: its id; gsaas reservations lists them",
                ),
                *OUTPUT,
            ),
            details="""
The exit status is 0 if the request fits now, 3 if it may fit later, 4 if it can never fit, and 1 if
the project's quota does not allow it, or the reservation has not begun or is over.""",
        ),
        CommandSpec(
            "gpus",
            "list the GPUs: totals, and for administrators each GPU",
            handler="gpus:gpus",
            mistaken_names=("enable", "disable"),
            usage="gsaas gpus [-disable=UUID [-reason=TEXT] | -enable=UUID | -adopt=UUID [-host=HOST]]",
            example='gsaas gpus -disable=GPU-5b9f… -reason="ECC errors"',
            options=(
                *service_options("UUID"),
                Option("adopt", "UUID", "consent to the move of a GPU to another host"),
                Option("host", "HOST", "the host to which it moved; needed if several report it"),
            ),
            details="""
A GPU belongs to the host that reported it first. If another host reports it, that is shown under
the table, and the GPU stays where it is until an administrator consents to its move. It can move
only while no lease uses it.""",
        ),
        CommandSpec(
            "hosts",
            "list the hosts: totals, and for administrators each host",
            handler="hosts:hosts",
            mistaken_names=("hypervisor", "hypervisors", "enable", "disable"),
            usage="gsaas hosts [-disable=NAME [-reason=TEXT] | -enable=NAME | -forget=NAME [-force]]",
            example='gsaas hosts -disable=gpu1 -reason="new fans"',
            options=(
                *service_options("NAME"),
                Option("forget", "NAME", "remove a host that is gone for good"),
                Option("force", None, "remove it although its agents have reported recently"),
            ),
            details="""
Forget a host only when it is switched off and stays off. Leases that have claimed its GPUs end in
ERROR with a fault that states the reason; their VMs are not deleted. Leases whose VMs ran on the
host no longer wait for its endpoint to remove their bindings. A host whose agents have reported
recently is refused, unless -force is given.""",
        ),
        CommandSpec(
            "endpoints",
            "list the RODVR endpoints of compute hosts (administrators)",
            handler="endpoints:endpoints",
            mistaken_names=("agent", "agents", "service", "services"),
            usage="gsaas endpoints [HOST] [option ...]",
            example="gsaas endpoints compute1",
            options=(Option("host", "HOST", "this host only"), *OUTPUT),
            positional="host",
        ),
        CommandSpec(
            "policies",
            "list the policies by which GPUs are selected",
            handler="policies:policies",
            usage="gsaas policies [option ...]",
            example="gsaas policies -f json",
            options=OUTPUT,
        ),
        CommandSpec(
            "policy",
            "show a policy; show or set the default one",
            handler="policies:policy",
            usage="gsaas policy [NAME | -default=NAME | -reset]",
            example="gsaas policy -default=energy",
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
            details="""
A new default applies from the next request on, without a restart. Leases keep their GPUs.""",
        ),
        CommandSpec(
            "limits",
            "list your project's quota, and how much of it is used",
            handler="limits:limits",
            mistaken_names=("quota", "quotas", "absolute-limits"),
            usage="gsaas limits [option ...]",
            example="gsaas limits -f json",
            options=OUTPUT,
        ),
        CommandSpec(
            "top",
            "watch GPUs, leases and the queue",
            handler="top.command:top",
            usage="gsaas top [-once] [-sort=ORDER] [-interval=SECONDS]",
            example="gsaas top -sort=busy",
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
                    "SECONDS",
                    "time between two updates (default: 2)",
                    convert=whole_number,
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
            details="""
Keys: q quits, p pauses, s changes the order; the arrows, j, k and the page keys scroll. In a memory
bar # is in use, - is claimed by leases and not in use, . is free. Administrators see every GPU and
the leases on it; a GPU is silent if its host has not reported in time. Other users see the totals,
and the leases of their project. gsaas gpus, gsaas list and gsaas queue print each table by itself,
in more formats.""",
        ),
        CommandSpec(
            "usage",
            "print GPU-hours and MiB-hours by project",
            handler="usage:usage",
            usage="gsaas usage [-start=TIME] [-end=TIME] [option ...]",
            example="gsaas usage -start=2026-10-01 -end=2026-11-01 -f csv",
            options=(
                Option("start", "TIME", "begin of the period (default: begin of this month)"),
                Option("end", "TIME", "end of the period (default: now)"),
                *OUTPUT,
            ),
            details="""
Shows your project; administrators see all projects. A TIME is a date, which stands for its
midnight, or such as 2026-10-01T12:00:00Z; all times are UTC. A lease counts from when its GPUs were
claimed until they are released, or until now.""",
        ),
        CommandSpec(
            "slurm",
            "what Slurm calls, so that its jobs get cGPUs (operators)",
            handler="slurm.command:slurm",
            usage="gsaas slurm prolog-slurmctld|prolog|epilog|reconcile [option ...]",
            example="gsaas slurm reconcile",
            options=(
                Option(
                    "program",
                    "PROGRAM",
                    "which one: prolog-slurmctld, prolog, epilog or reconcile",
                    convert=one_of("prolog-slurmctld", "prolog", "epilog", "reconcile"),
                ),
                Option(
                    "wait",
                    "SECONDS",
                    "prolog-slurmctld: wait in the queue for at most SECONDS, then have the job requeued "
                    "(default: have it requeued at once)",
                    convert=whole_number,
                ),
                Option(
                    "domain",
                    "SUFFIX",
                    "prolog-slurmctld: what a node's name in GSaaS has after its name in Slurm, such as "
                    ".example.org",
                ),
                Option(
                    "folder",
                    "FOLDER",
                    "prolog, epilog: where the plug-in looks for environments (default: /run/gsaas/slurm)",
                ),
                Option(
                    "grace",
                    "SECONDS",
                    "reconcile: how long a lease has to be without a job before it is released; epilog: how old "
                    "what other jobs have left has to be; 0: do it at once (default: 600)",
                    convert=any_number,
                ),
                Option(
                    "state",
                    "FOLDER",
                    "reconcile: where it keeps since when leases are without a job (default: /var/lib/gsaas-slurm)",
                ),
            ),
            positional="program",
            details="""
prolog-slurmctld claims cGPUs for each node of a job, prolog fetches their environment on a node,
and epilog releases them. reconcile releases the leases whose job has not had their node for a
while, as after the failure of a node; a timer calls it on the controller.

The job is described by the environment that Slurm gives its prologs. Failures are also written to
the system log.""",
        ),
        CommandSpec(
            "settings",
            "show or change what can be changed while the service runs (administrators)",
            handler="settings:settings",
            usage="gsaas settings [-interval=SECONDS|default]",
            example="gsaas settings -interval=5",
            options=(
                Option(
                    "interval",
                    "SECONDS|default",
                    "time between two reports of GPU hosts; default: as configured on each",
                    convert=seconds_or_default,
                ),
                *OUTPUT,
            ),
        ),
    )
}
