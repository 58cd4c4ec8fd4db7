"""The commands of `gsaas`, in the order of its help: one table of all there is to type.

Each names its handler, a `module:function` of this package, imported only when it is wanted.
"""

from __future__ import annotations

from gsaas.cli.spelling import Command, Option, one_of, whole_number

FORMAT = Option(
    "f",
    "table|json",
    "how to print the answer: a table (default), or json as the API says it",
    convert=one_of("table", "json"),
    aliases=("format",),
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
)

SERVER = (
    Option("image", "IMAGE", "what the VM boots from: its name or id"),
    Option("flavor", "FLAVOR", "its size: name or id"),
    Option("network", "NETWORK", "a network to attach; may be given again", repeated=True),
    Option("name", "NAME", "a name for the lease and its VM"),
    Option("key", "NAME", "the key pair to log in with"),
    Option("userdata", "FILE", "your own cloud-init user data; GSaaS adds its part to it"),
)


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
    command.word: command
    for command in (
        Command(
            "launch",
            "launch a VM with cGPUs (or -l)",
            handler="leases:launch",
            action="l",
            usage="gsaas -l -ncgpus=N [option ...]",
            example="gsaas -l -ncgpus=2 -poolmem=2048 -mode=shared -name=training",
            options=(*CGPUS, *SERVER, NOWAIT, FORMAT),
            more="""
Waits until the VM is active and its cGPUs are wired, unless -nowait is given. When the cloud cannot
give what was asked for, nothing is launched, and the answer says why and what would fit.""",
        ),
        Command(
            "terminate",
            "destroy a VM and give its cGPUs back (or -t)",
            handler="leases:terminate",
            action="t",
            usage="gsaas -t -id=ID [option ...]",
            example="gsaas -t -id=training",
            options=(lease_id("what to end"), NOWAIT, FORMAT),
            positional="id",
        ),
        Command(
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
        Command(
            "show",
            "one lease, and all that happened to it",
            handler="leases:show",
            usage="gsaas show ID",
            example="gsaas show training",
            options=(lease_id("what to show"), FORMAT),
            positional="id",
        ),
        Command(
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
            more="""
In a VM that GSaaS booted, cloud-init has set all of this already.""",
        ),
        Command(
            "exec",
            "run a command inside a lease's VM",
            handler="exec:run",
            usage="gsaas exec ID -- COMMAND [ARGUMENT ...]",
            example="gsaas exec training -- ip route",
            options=(lease_id("whose VM"),),
            positional="id",
            runs=True,
            more="""
With gsaas-standalone only, where a VM is a network namespace of this machine; needs root. The
command gets the lease's environment, and its exit status is the answer.""",
        ),
        Command(
            "check",
            "would it fit? nothing is launched",
            handler="checks:check",
            usage="gsaas check -ncgpus=N [option ...]",
            example="gsaas check -ncgpus=8 -poolmem=4096 -mode=shared -locality=local",
            options=(*CGPUS, FORMAT),
            more="""
The exit status is 0 if it would fit now, and 1 if not.""",
        ),
        Command(
            "gpus",
            "the GPUs of the cloud: totals, and each one for administrators",
            handler="gpus:gpus",
            usage="gsaas gpus [-disable=UUID [-reason=TEXT] | -enable=UUID]",
            example='gsaas gpus -disable=GPU-5b9f… -reason="ECC errors"',
            options=switches("UUID"),
        ),
        Command(
            "hosts",
            "the hosts of the cloud: totals, and each one for administrators",
            handler="hosts:hosts",
            usage="gsaas hosts [-disable=NAME [-reason=TEXT] | -enable=NAME]",
            example='gsaas hosts -disable=gpu1 -reason="new fans"',
            options=switches("NAME"),
        ),
        Command(
            "endpoints",
            "what the RODVR endpoint of each compute host has installed (administrators)",
            handler="endpoints:endpoints",
            usage="gsaas endpoints [HOST]",
            example="gsaas endpoints compute1",
            options=(Option("host", "HOST", "one host only"), FORMAT),
            positional="host",
        ),
        Command(
            "policies",
            "the ways in which GPUs can be chosen",
            handler="policies:policies",
            usage="gsaas policies",
            example="gsaas policies -f json",
            options=(FORMAT,),
        ),
        Command(
            "limits",
            "how much your project may hold, and how much it does",
            handler="limits:limits",
            usage="gsaas limits",
            example="gsaas limits -f json",
            options=(FORMAT,),
        ),
    )
}
