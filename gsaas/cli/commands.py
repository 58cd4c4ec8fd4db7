"""The commands of `gsaas`, in the order of its help: one table of all there is to type.

Each names its handler, a `module:function` of this package, imported only when it is wanted.
"""

from __future__ import annotations

from gsaas.cli.exit_statuses import RUN_FAILED
from gsaas.cli.parser import FOREVER, CommandSpec, Option, any_number, one_of, whole_number

FORMAT = Option(
    "f",
    "table|json",
    "how to print the answer: a table (default), or json as the API says it",
    convert=one_of("table", "json"),
    aliases=("format",),
    mistaken_names=("o", "output"),
    default="table",
)
NOWAIT = Option("nowait", None, "return at once; gsaas show tells how it goes")
REASON = Option("reason", "TEXT", "why it is disabled, for those who wonder")

CGPUS = (
    Option("ncgpus", "N", "how many cGPUs", convert=whole_number),
    Option(
        "mode",
        "exclusive|shared",
        "exclusive (default): whole GPUs, yours alone; shared: a part of a GPU's memory each",
        convert=one_of("exclusive", "shared"),
        default="exclusive",
    ),
    Option(
        "poolmem",
        "MIB",
        "MiB of GPU memory per cGPU; needed with -mode=shared, and only there",
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
    Option("policy", "NAME", "how GPUs are chosen; gsaas policies lists them"),
    Option("model", "TEXT", "only GPUs whose model contains this, such as A100"),
    Option("capability", "X.Y", "only GPUs of at least this CUDA compute capability, such as 8.0"),
    Option(
        "hosts",
        "any|one|spread",
        "any (default): wherever the GPUs are; one: all on one GPU host; spread: each on another",
        convert=one_of("any", "one", "spread"),
        default="any",
    ),
    Option("host", "NAME", "only GPUs of this GPU host"),
)

QUEUE = (
    Option(
        "wait",
        "SECONDS",
        "when it does not fit now, wait in the queue until it does, or for so many seconds",
        convert=whole_number,
        bare_value=FOREVER,
    ),
    Option(
        "priority",
        "N",
        "in the queue: below 0 lets others go first; above 0 goes before them (administrators)",
        convert=any_number,
    ),
)

SERVER = (
    Option("image", "IMAGE", "what the VM boots from: its name or id"),
    Option("flavor", "FLAVOR", "its size: name or id"),
    Option("network", "NETWORK", "a network to attach; may be given again", repeatable=True),
    Option("name", "NAME", "a name for the lease and its VM"),
    Option("key", "NAME", "the key pair to log in with"),
    Option("userdata", "FILE", "your own cloud-init user data; GSaaS adds its part to it"),
)


CONSUMER = (
    Option("on", "HOST", "the host whose programs use them, as GSaaS knows it (default: this one)"),
    Option(
        "uid",
        "UID|any",
        "where masked addresses are used, they are this user's alone (default: yours)",
        convert=lambda value: _user_id(value),
    ),
)


def _user_id(value: str) -> int | str:
    from gsaas.cli.alloc import user_id

    return user_id(value)


def seconds_or_default(value: str) -> int | str:
    """Seconds, or the word that goes back to the configuration."""
    return value if value == "default" else whole_number(value)


def lease_id(what: str) -> Option:
    return Option("id", "ID", f"{what}: a lease's id, its VM's id, or its name")


def switches(noun: str) -> tuple[Option, ...]:
    """The options with which an operator takes a GPU or host out of service."""
    return (
        Option("disable", noun, "offer it to nobody from now on; leases that hold it keep it"),
        Option("enable", noun, "offer it again"),
        REASON,
        FORMAT,
    )


COMMANDS = {
    command.name: command
    for command in (
        CommandSpec(
            "launch",
            "launch a VM with cGPUs (or -l)",
            handler="leases:launch",
            action="l",
            usage="gsaas -l -ncgpus=N [option ...]",
            example="gsaas -l -ncgpus=2 -poolmem=2048 -mode=shared -name=training",
            options=(*CGPUS, *SERVER, *QUEUE, NOWAIT, FORMAT),
            details="""
Waits until the VM is active and its cGPUs are wired, unless -nowait is given. When the cloud cannot
give what was asked for, nothing is launched, and the answer says why and what would fit. With -wait
the request queues up then, and Ctrl-C gives its place back; with -wait -nowait it keeps its place
whether or not anybody asks for it.""",
        ),
        CommandSpec(
            "terminate",
            "destroy a VM and give its cGPUs back (or -t)",
            handler="leases:terminate",
            action="t",
            mistaken_names=("delete", "remove", "rm", "stop", "end"),
            usage="gsaas -t -id=ID [option ...]",
            example="gsaas -t -id=training",
            options=(lease_id("what to end"), NOWAIT, FORMAT),
            positional="id",
        ),
        CommandSpec(
            "alloc",
            "take cGPUs for programs that run already, without a VM",
            handler="alloc:alloc",
            usage="gsaas alloc -ncgpus=N [option ...]",
            example="gsaas alloc -ncgpus=2 -poolmem=1024 -mode=shared",
            options=(
                *CGPUS,
                *CONSUMER,
                Option("name", "NAME", "a name for the lease"),
                *QUEUE,
                FORMAT,
            ),
            details="""
Prints lines for a shell to eval: where the cGPUs are, and GSAAS_LEASE, by which gsaas release
gives them back. Nothing else goes there, so what fails evaluates to nothing:

  gpus=$(gsaas alloc -ncgpus=1) && eval "$gpus"

Programs that do not share the network of this host, such as those in most containers, cannot use
masked addresses of the host.""",
        ),
        CommandSpec(
            "release",
            "give back the cGPUs that gsaas alloc took",
            handler="alloc:release",
            mistaken_names=("delete", "remove", "rm", "free"),
            usage="gsaas release [-id=ID]",
            example="gsaas release -id=$GSAAS_LEASE",
            options=(lease_id("what to give back (default: $GSAAS_LEASE)"), NOWAIT, FORMAT),
            positional="id",
        ),
        CommandSpec(
            "redeem",
            "show the grant of a lease, so that its GPUs let this host in",
            handler="alloc:redeem",
            offline=True,
            usage="gsaas redeem",
            example="gsaas redeem",
            details="""
gsaas alloc does so itself. This is for a lease that was taken on another host (gsaas alloc -on=…)
or by a program: evaluate its environment here, then redeem its grant, once.""",
        ),
        CommandSpec(
            "list",
            "the leases you have",
            handler="leases:list_all",
            usage="gsaas list [option ...]",
            example="gsaas list -status=ACTIVE",
            options=(
                Option("status", "STATUS", "only those in this status; RELEASED ones show only so"),
                Option("name", "NAME", "only those with this name"),
                Option("all", None, "those of all projects (administrators)"),
                FORMAT,
            ),
        ),
        CommandSpec(
            "show",
            "one lease, and all that happened to it",
            handler="leases:show",
            usage="gsaas show ID",
            example="gsaas show training",
            options=(lease_id("what to show"), FORMAT),
            positional="id",
        ),
        CommandSpec(
            "env",
            "the environment that programs in the VM need to find their cGPUs",
            handler="leases:env",
            usage="gsaas env ID [-shell|-dotenv|-json]",
            example='eval "$(gsaas env training)"',
            options=(
                lease_id("whose environment"),
                Option("shell", None, "lines that a shell can eval (default)"),
                Option("dotenv", None, "lines for an env file"),
                Option("json", None, "a JSON object"),
            ),
            positional="id",
            details="""
In a VM that GSaaS booted, cloud-init has set all of this already.""",
        ),
        CommandSpec(
            "exec",
            "run a command inside a lease's VM",
            handler="exec:run",
            usage="gsaas exec ID -- COMMAND [ARGUMENT ...]",
            example="gsaas exec training -- ip route",
            options=(lease_id("whose VM"),),
            positional="id",
            takes_command=True,
            details="""
With gsaas-standalone only, where a VM is a network namespace of this machine; needs root. The
command gets the lease's environment, and its exit status is the answer.""",
        ),
        CommandSpec(
            "run",
            "take cGPUs, run a command with them, give them back",
            handler="run:run",
            usage="gsaas run -ncgpus=N [option ...] -- COMMAND [ARGUMENT ...]",
            example="gsaas run -ncgpus=1 -poolmem=1024 -mode=shared -- ./app",
            options=(*CGPUS, *CONSUMER, Option("name", "NAME", "a name for the lease"), *QUEUE),
            takes_command=True,
            failure_status=RUN_FAILED,
            details="""
The command gets the environment that gsaas alloc prints, and the cGPUs go back when it ends,
however it does. Signals sent to gsaas run go on to the command. Should gsaas run itself be killed,
so is the command, and the cGPUs go back about a minute later.

The exit status is the command's own, or 128 and the number of the signal that ended it; else

    2  the line makes no sense             125  GSaaS failed, or refused for another reason
    3  there is nothing to be had now      126  the command cannot be run
    4  there never will be                 127  there is no such command
  130  interrupted before the command began""",
        ),
        CommandSpec(
            "queue",
            "who waits for cGPUs, and for how long about",
            handler="queue:queue",
            usage="gsaas queue",
            example="gsaas queue -f json",
            options=(FORMAT,),
            details="""
Everybody sees how many requests wait, and those of the own project; administrators see all of them.
A request waits if it was made with -wait; gsaas -t -id=ID gives its place back.""",
        ),
        CommandSpec(
            "check",
            "would it fit? nothing is launched",
            handler="checks:check",
            usage="gsaas check -ncgpus=N [option ...]",
            example="gsaas check -ncgpus=8 -poolmem=4096 -mode=shared -locality=local",
            options=(
                *CGPUS,
                Option("on", "HOST", "without a VM: the host whose programs would use them"),
                FORMAT,
            ),
            details="""
The exit status is 0 if it would fit now, 3 if it may fit later, 4 if it never will, and 1 if the
project's quota does not allow it.""",
        ),
        CommandSpec(
            "gpus",
            "the GPUs of the cloud: totals, and each one for administrators",
            handler="gpus:gpus",
            usage="gsaas gpus [-disable=UUID [-reason=TEXT] | -enable=UUID]",
            example='gsaas gpus -disable=GPU-5b9f… -reason="ECC errors"',
            options=switches("UUID"),
        ),
        CommandSpec(
            "hosts",
            "the hosts of the cloud: totals, and each one for administrators",
            handler="hosts:hosts",
            usage="gsaas hosts [-disable=NAME [-reason=TEXT] | -enable=NAME | -forget=NAME [-force]]",
            example='gsaas hosts -disable=gpu1 -reason="new fans"',
            options=(
                *switches("NAME"),
                Option("forget", "NAME", "it is gone for good: take it off the list"),
                Option("force", None, "forget it though it was heard of a moment ago"),
            ),
            details="""
Forget a host only when it is switched off and stays so. Leases that hold its GPUs end in ERROR and
say so to their owners; VMs in use are left to them. Leases of VMs that ran on it no longer wait for
its endpoint to let go of them. A host whose agents still speak is not forgotten, unless forced.""",
        ),
        CommandSpec(
            "endpoints",
            "what the RODVR endpoint of each compute host has installed (administrators)",
            handler="endpoints:endpoints",
            usage="gsaas endpoints [HOST]",
            example="gsaas endpoints compute1",
            options=(Option("host", "HOST", "one host only"), FORMAT),
            positional="host",
        ),
        CommandSpec(
            "policies",
            "the ways in which GPUs can be chosen",
            handler="policies:policies",
            usage="gsaas policies",
            example="gsaas policies -f json",
            options=(FORMAT,),
        ),
        CommandSpec(
            "policy",
            "what one policy is good for; the default one, to set or to see",
            handler="policies:policy",
            usage="gsaas policy [NAME | -default=NAME | -reset]",
            example="gsaas policy -default=energy",
            options=(
                Option("name", "NAME", "which policy to tell about; the default one if left out"),
                Option("default", "NAME", "have it serve requests that name none (administrators)"),
                Option("reset", None, "go back to the configured default (administrators)"),
                FORMAT,
            ),
            positional="name",
            details="""
A new default serves from the next request on; nothing needs a restart, and leases keep their GPUs.""",
        ),
        CommandSpec(
            "limits",
            "how much your project may hold, and how much it does",
            handler="limits:limits",
            usage="gsaas limits",
            example="gsaas limits -f json",
            options=(FORMAT,),
        ),
        CommandSpec(
            "top",
            "GPUs, who holds what and who waits, as it changes",
            handler="top.command:top",
            usage="gsaas top [-once] [-sort=ORDER] [-interval=SECONDS]",
            example="gsaas top -sort=busy",
            options=(
                Option("once", None, "print it once; so it is, too, where there is no terminal"),
                Option(
                    "sort",
                    "host|held|busy|temperature|power",
                    "in which order GPUs are shown (default: host)",
                    convert=one_of("host", "held", "busy", "temperature", "power"),
                    default="host",
                ),
                Option(
                    "interval",
                    "SECONDS",
                    "how often to look again (default: 2)",
                    convert=whole_number,
                    default=2,
                ),
                FORMAT,
            ),
            details="""
In a terminal: q quits, p pauses, s sorts by something else; the arrows, j, k and the page keys
scroll. In a memory bar # is in use, - is held by leases and not in use, . is free. Administrators
see every GPU and whose it is; one is silent if its host has not reported. Everybody sees the
totals, and the leases of the own project.""",
        ),
        CommandSpec(
            "usage",
            "GPU-hours and MiB-hours of your project, for administrators of all",
            handler="usage:usage",
            usage="gsaas usage [-start=TIME] [-end=TIME] [-f table|json|csv]",
            example="gsaas usage -start=2026-10-01 -end=2026-11-01 -f csv",
            options=(
                Option("start", "TIME", "when the period begins (default: with this month)"),
                Option("end", "TIME", "when it ends (default: now)"),
                Option(
                    "f",
                    "table|json|csv",
                    "how to print the answer: a table (default), json as the API says it, or csv",
                    convert=one_of("table", "json", "csv"),
                    aliases=("format",),
                    default="table",
                ),
            ),
            details="""
A TIME is a date, whose midnight is meant, or such as 2026-10-01T12:00:00Z; all are UTC. A lease
counts from when it was given GPUs until they are given back; one that still has them, until now.""",
        ),
        CommandSpec(
            "settings",
            "what administrators may change while the service runs",
            handler="settings:settings",
            usage="gsaas settings [-interval=SECONDS|default]",
            example="gsaas settings -interval=5",
            options=(
                Option(
                    "interval",
                    "SECONDS|default",
                    "how often GPU hosts report; default: as the configuration of each says",
                    convert=seconds_or_default,
                ),
                FORMAT,
            ),
        ),
    )
}
