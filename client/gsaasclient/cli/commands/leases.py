# SPDX-License-Identifier: Apache-2.0
"""The commands of `gsaas` that take cGPUs, use them and return them."""

from __future__ import annotations

from gsaasclient import lease_fields
from gsaasclient.cli.commands.options import (
    CGPUS,
    CONSUMER,
    END,
    LEASE_NAME,
    MOVABLE,
    NEW_END,
    NOWAIT,
    OUTPUT,
    QUEUE,
    RESERVATION,
    SERVER,
    TIMES,
    lease_id,
    sort,
)
from gsaasclient.cli.exit_statuses import RUN_FAILED
from gsaasclient.cli.parser import CommandSpec, Handler, Help, Option, any_number, whole_number
from gsaasclient.times import for_api

_MORE = [name for name in lease_fields.GSAAS if name not in lease_fields.TABLE]

LEASES = (
    CommandSpec(
        "launch",
        Help(
            "launch a VM with cGPUs; -l for short",
            usage="gsaas -l -ncgpus=N [option ...]",
            example="gsaas -l -ncgpus=2 -poolmem=2048 -mode=shared -name=training",
            details="""
Returns when the VM is active and its cGPUs are connected, or at once with -nowait. If the cloud
cannot provide the cGPUs, nothing is launched; the message states why and which request would fit.
With -wait the request then waits in the queue. Ctrl-C gives up its place; with -wait -nowait the
place is kept without a client.""",
        ),
        Handler("leases:launch"),
        action="l",
        mistaken_names=("create", "boot", "new", "server"),
        options=(*CGPUS, *SERVER, *END, *QUEUE, RESERVATION, MOVABLE, NOWAIT, *OUTPUT),
    ),
    CommandSpec(
        "terminate",
        Help(
            "end leases and destroy their VMs; -t for short",
            usage="gsaas -t -id=ID [ID ...] [option ...]",
            example="gsaas -t -id=training",
            details="""
Of several, those after one that cannot be ended are ended all the same; the exit status is 1 then.""",
        ),
        Handler("leases:terminate"),
        action="t",
        mistaken_names=("delete", "remove", "rm", "stop", "end", "destroy", "kill", "cancel"),
        options=(lease_id("the lease to end", repeatable=True), NOWAIT, *OUTPUT),
        positional="id",
    ),
    CommandSpec(
        "alloc",
        Help(
            "take cGPUs without a VM, for programs on an existing host",
            usage="gsaas alloc -ncgpus=N [option ...]",
            example="gsaas alloc -ncgpus=2 -poolmem=1024 -mode=shared",
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
        Handler("alloc:alloc"),
        mistaken_names=("allocate", "claim", "acquire"),
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
            *END,
            *QUEUE,
            RESERVATION,
            MOVABLE,
            *OUTPUT,
        ),
    ),
    CommandSpec(
        "release",
        Help(
            "release the cGPUs that gsaas alloc took",
            usage="gsaas release [ID ...]",
            example="gsaas release -id=$GSAAS_LEASE",
        ),
        Handler("alloc:release"),
        mistaken_names=("delete", "remove", "rm", "free", "deallocate"),
        options=(
            lease_id("the lease to end (default: $GSAAS_LEASE)", repeatable=True),
            NOWAIT,
            *OUTPUT,
        ),
        positional="id",
    ),
    CommandSpec(
        "redeem",
        Help(
            "admit this host to the GPUs of a lease that was taken elsewhere",
            usage="gsaas redeem",
            example="gsaas redeem",
            details="""
gsaas alloc does this itself. It is needed for a lease that was taken on another host (gsaas alloc
-on=…) or by a program: evaluate its environment here, then redeem its grant, once.""",
        ),
        Handler("alloc:redeem", offline=True),
    ),
    CommandSpec(
        "list",
        Help(
            "list your leases",
            usage="gsaas list [option ...]",
            example="gsaas list -status=ACTIVE -c=name -c=cgpus",
            details=f"""
{TIMES}

-sort accepts id, name, status, project_id, user_id, created_at, updated_at,
released_at, queued_at, wait_until, kept_until, priority, count, mode, memory_mb, locality, policy,
access, server_id and, for administrators, server_host.

Besides the columns of the table, -c accepts {", ".join(_MORE[:5])},
{", ".join(_MORE[5:12])},
{", ".join(_MORE[12:])}.""",
        ),
        Handler("leases:list_all"),
        mistaken_names=("ls", "ps", "status", "lease", "leases", "server", "servers"),
        options=(
            Option(
                "status",
                "STATUS",
                "only leases in this status, such as ACTIVE; RELEASED ones are listed only with it",
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
                convert=for_api,
                mistaken_names=("changes_since", "since"),
            ),
            *OUTPUT,
        ),
    ),
    CommandSpec(
        "history",
        Help(
            "list your leases that have ended, and what they used",
            usage="gsaas history [-since=TIME] [option ...]",
            example="gsaas history -since=30d",
            details="""
A TIME is how long ago, such as 7d, or a date or time such as yesterday or 2026-11-01. GPU-h are
hours of whole GPUs, from when a lease got its GPUs until they were released. mean % and peak % are
the share of the time in which its cGPUs ran kernels, peak MiB the most memory that one of them
used; a hyphen stands for what nobody could measure. -c also accepts project_id, memory_mb and
released_at.""",
        ),
        Handler("history:history"),
        mistaken_names=("ended", "sacct", "past"),
        options=(
            Option(
                "since",
                "TIME",
                "only leases that have ended since TIME (default: 7d, seven days ago)",
                default="7d",
            ),
            Option("name", "NAME", "only leases with this name"),
            Option(
                "all",
                None,
                "leases of all projects (administrators)",
                mistaken_names=("all-projects", "a"),
            ),
            *OUTPUT,
        ),
    ),
    CommandSpec(
        "show",
        Help(
            "show a lease and its events",
            usage="gsaas show ID [option ...]",
            example="gsaas show training",
            details="""
If no other lease has the name, the newest RELEASED one of that name is shown.""",
        ),
        Handler("leases:show"),
        mistaken_names=("get", "info", "describe", "lease", "events"),
        options=(lease_id("the lease to show"), *OUTPUT),
        positional="id",
    ),
    CommandSpec(
        "set",
        Help(
            "change the name or the end of a lease, its consent to moves, or its priority",
            usage="gsaas set ID [option ...]",
            example="gsaas set training -for=+2h",
        ),
        Handler("changes:change"),
        mistaken_names=("update", "change", "modify", "rename", "extend", "postpone"),
        options=(
            lease_id("the lease to change"),
            Option("name", "NAME", "its new name; that of its VM stays"),
            *NEW_END,
            MOVABLE,
            Option(
                "priority",
                "N",
                "its new priority while it waits in the queue; above 0 for administrators",
                convert=any_number,
            ),
            *OUTPUT,
        ),
        positional="id",
    ),
    CommandSpec(
        "move",
        Help(
            "move cGPUs of a lease to other GPUs (administrators)",
            usage="gsaas move ID [-index=N] [-to=GPU | -host=HOST] [-force] [option ...]",
            example="gsaas move training -host=gpu2",
            details="""
The lease, its VM and the addresses of its cGPUs stay: new connections lead to the other GPUs. If
programs have connections open, the lease stays where it is; with -force they are cut, what the
programs have on the GPUs is lost, and they have to start again. Without -to and -host, the policy
of the lease chooses the GPUs. A lease with -movable=cut needs no -force. Waits until the lease has
moved; the exit status is 1 if it stays.""",
        ),
        Handler("moves:move"),
        mistaken_names=("migrate", "relocate"),
        options=(
            lease_id("the lease to move"),
            Option(
                "index",
                "N",
                "only this cGPU, counted from 0 (default: all of the lease)",
                convert=any_number,
            ),
            Option("to", "GPU", "the UUID of the GPU that it is to go to"),
            Option("host", "HOST", "the host whose GPUs it is to go to"),
            Option("force", None, "cut the connections that are open"),
            Option("check", None, "say what would be done, and do nothing"),
            NOWAIT,
            *OUTPUT,
        ),
        positional="id",
    ),
    CommandSpec(
        "env",
        Help(
            "print the environment that programs need to find their cGPUs",
            usage="gsaas env ID [-shell|-dotenv|-json | -f=FORMAT]",
            example='eval "$(gsaas env training)"',
            details="""
In a VM that GSaaS launched, cloud-init has set these variables already.""",
        ),
        Handler("leases:env"),
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
    ),
    CommandSpec(
        "exec",
        Help(
            "run a command inside a lease's VM",
            usage="gsaas exec ID -- COMMAND [ARGUMENT ...]",
            example="gsaas exec training -- ip route",
            details="""
With gsaas-standalone only, where a VM is a network namespace of this machine; requires root. The
command gets the lease's environment; the exit status is that of the command.""",
        ),
        Handler("exec:run"),
        mistaken_names=("ssh", "shell", "console"),
        options=(lease_id("the lease of the VM"),),
        positional="id",
        takes_command=True,
    ),
    CommandSpec(
        "run",
        Help(
            "take cGPUs, run a command with them, and release them",
            usage="gsaas run -ncgpus=N [option ...] -- COMMAND [ARGUMENT ...]",
            example="gsaas run -ncgpus=1 -poolmem=1024 -mode=shared -- ./app",
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
        Handler("run:run", failure_status=RUN_FAILED),
        options=(*CGPUS, *CONSUMER, LEASE_NAME, *END, *QUEUE, RESERVATION),
        takes_command=True,
    ),
)
