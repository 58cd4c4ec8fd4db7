# SPDX-License-Identifier: Apache-2.0
"""The commands of `gsaas` about requests that wait, have reserved cGPUs, or are only to be checked."""

from __future__ import annotations

from gsaasclient.cli.commands.options import CGPUS, OUTPUT, TIMES, sort
from gsaasclient.cli.parser import CommandSpec, Handler, Help, Option
from gsaasclient.times import for_api

REQUESTS = (
    CommandSpec(
        "queue",
        Help(
            "list the requests that wait for cGPUs, with estimates",
            usage="gsaas queue [option ...]",
            example="gsaas queue -f json",
            details="""
Shows how many requests wait, and those of your project; administrators see those of all projects.
A request waits if it was made with -wait; gsaas -t -id=ID gives up its place.""",
        ),
        Handler("queue:queue"),
        options=OUTPUT,
    ),
    CommandSpec(
        "reserve",
        Help(
            "reserve cGPUs for a time to come",
            usage="gsaas reserve -ncgpus=N -end=TIME [-start=TIME] [option ...]",
            example="gsaas reserve -ncgpus=4 -start=2040-01-31T09:00:00Z -end=2040-01-31T17:00:00Z",
            details=f"""
Between start and end, gsaas -l -reservation=ID launches in the reservation.

{TIMES}""",
        ),
        Handler("reservations:reserve"),
        mistaken_names=("book",),
        options=(
            *(option for option in CGPUS if option.name not in ("locality", "policy")),
            Option("start", "TIME", "its beginning (default: now)", convert=for_api),
            Option("end", "TIME", "its end", convert=for_api, mistaken_names=("until",)),
            Option("name", "NAME", "a name for the reservation"),
            *OUTPUT,
        ),
    ),
    CommandSpec(
        "reservations",
        Help(
            "list your reservations",
            usage="gsaas reservations [option ...]",
            example="gsaas reservations",
            details="""
kept: how many of its cGPUs it has already. Besides the columns of the table, -c accepts project_id
and end. -sort accepts id, name, status, project_id, user_id, created_at, start and end.""",
        ),
        Handler("reservations:reservations"),
        options=(
            Option(
                "status",
                "STATUS",
                "only those in this status, such as ACTIVE; ENDED and CANCELLED ones are listed only with it",
            ),
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
        "reservation",
        Help(
            "show a reservation, or give it another name",
            usage="gsaas reservation ID [-name=NEW] [option ...]",
            example="gsaas reservation course -name=lecture",
        ),
        Handler("reservations:reservation"),
        options=(
            Option(
                "id",
                "ID",
                "the reservation: its id, the beginning of it, or its name",
                repeatable=True,
            ),
            Option("name", "NEW", "its new name"),
            *OUTPUT,
        ),
        positional="id",
    ),
    CommandSpec(
        "unreserve",
        Help(
            "cancel a reservation; leases that were launched in it go on",
            usage="gsaas unreserve ID [option ...]",
            example="gsaas unreserve course",
        ),
        Handler("reservations:unreserve"),
        options=(
            Option(
                "id", "ID", "the reservation to cancel: its id, the beginning of it, or its name"
            ),
            *OUTPUT,
        ),
        positional="id",
    ),
    CommandSpec(
        "check",
        Help(
            "check whether a request would fit, without launching anything",
            usage="gsaas check -ncgpus=N [option ...]",
            example="gsaas check -ncgpus=8 -poolmem=4096 -mode=shared -locality=local",
            details="""
The exit status is 0 if the request fits now, 3 if it may fit later, 4 if it can never fit, and 1 if
the project's quota does not allow it, or the reservation has not begun or is over.""",
        ),
        Handler("checks:check"),
        options=(
            *CGPUS,
            Option("on", "HOST", "without a VM: the host whose programs would use the cGPUs"),
            Option(
                "reservation",
                "ID",
                "in this reservation of your project: its id or name; gsaas reservations lists them",
            ),
            *OUTPUT,
        ),
    ),
)
