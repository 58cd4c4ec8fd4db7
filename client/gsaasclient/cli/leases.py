# SPDX-License-Identifier: Apache-2.0
"""Leases on the command line: launch, terminate, list, show, env."""

from __future__ import annotations

import signal
from collections.abc import Callable
from time import monotonic, sleep, time
from types import SimpleNamespace

from gsaasclient import ApiError, Client, ClientError, UnreachableError, lease_fields, vms
from gsaasclient.api import API_VERSION, version_of
from gsaasclient.cli import cgpus, finding, queue, readings
from gsaasclient.cli.columns import SHORT_ID, Column, select
from gsaasclient.cli.exit_statuses import DONE, FAILED
from gsaasclient.cli.interrupts import as_keyboard_interrupt
from gsaasclient.cli.made import given_back_unless_told
from gsaasclient.cli.output import (
    Progress,
    brief_table,
    print_error,
    print_list,
    print_note,
    print_resource,
    print_text,
)
from gsaasclient.cli.paging import get_all
from gsaasclient.cli.parser import UsageError
from gsaasclient.cli.tables import facts, fitted, table
from gsaasclient.quantities import span
from gsaasclient.times import age, local

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient.vms import Vm

    Lease = dict[str, Any]
    """A lease as the API shows it."""

INTERACTIVE_POLL, POLL = 2, 25
"""Seconds for which the API may delay its answer: on a terminal, where the time is shown, and elsewhere."""
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds until an API is asked again that does not delay its answer, as too many clients wait; each pause is half as
long again as the last."""
GOES_ON = ("QUEUED", "CLAIMED", "BOOTING", "ACTIVE")
"""Statuses of a lease whose end is still to come."""
UNKNOWN_REASON = "one of its GPUs has failed, or its state is unknown; it may recover"
"""Why a lease is degraded, for callers to whom the API does not show the reasons."""


END_IS_NEAR = 600
"""Seconds before its end from which a list says when a lease ends."""


def left(moment: str, now: float) -> float:
    """Return how many seconds after *now*, as `time.time` counts, a time of the API is."""
    # Imported here, because most leases have no end.
    from datetime import datetime

    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp() - now


def describe_left(seconds: float) -> str:
    """Return how far away a time is: `in 8m`, or `now`."""
    return f"in {span(seconds)}" if seconds >= 1 else "now"


def _left_if_near(lease: Lease) -> str | None:
    """Return how far away the end of a lease is, if that is so near that its owner should know; None if not."""
    if lease.get("ends_at") is None or lease["status"] not in GOES_ON:
        return None
    seconds = left(lease["ends_at"], time())
    return describe_left(seconds) if seconds <= END_IS_NEAR else None


QUEUE_STEP = "queue"
"""The step in the fault of a lease that left the queue without GPUs."""


def _got_no_gpus(lease: Lease) -> bool:
    """Return whether it left the queue without GPUs, be it that its time was over: nobody released it."""
    return (lease.get("fault") or {}).get("step") == QUEUE_STEP


def describe_status(lease: Lease) -> str:
    """Return the status of a lease, and what its owner should know beside it."""
    left, status = _left_if_near(lease), str(lease["status"])
    return (
        status
        + (", degraded" if lease["degraded"] else "")
        + (", idle" if lease.get("idle_since") else "")
        + (f", ends {left}" if left else "")
        + (", got no GPUs" if _got_no_gpus(lease) else "")
    )


_TEXTS: dict[str, Callable[[Lease], object]] = {
    "status": describe_status,
    "memory_mb": lambda lease: size(lease["cgpus"]),
    "problems": lambda lease: "; ".join(lease.get("problems", [])),
    "addresses": lambda lease: ", ".join((lease["server"] or {}).get("addresses", [])),
}
"""What tables show instead of the value of a field."""


def _column(field: lease_fields.Field) -> Column:
    """Return *field* as a column: times are those of this machine, and the table of a list has the beginning of ids."""
    is_id = field.name in ("id", "server_id")
    return Column(
        field.name,
        field.heading,
        field.value,
        text=(lambda lease: local(field.value(lease))) if field.is_time else _TEXTS.get(field.name),
        brief=(lambda lease: (field.value(lease) or "")[:SHORT_ID]) if is_id else None,
        least=6 if field.name == "name" else None,
        optional=field.since != "1.0",
    )


COLUMNS = [_column(field) for field in lease_fields.named(lease_fields.GSAAS)]
LISTED = ("id", "name", "status", "cgpus", "memory_mb", "server_id")
"""The columns of a list of leases, unless others are picked."""
AGE = Column("created_at", "age", text=lambda lease: age(lease["created_at"], time()))
"""The column that only the table of a list has besides."""

VARIABLES = (
    Column("name", value=lambda variable: variable[0]),
    Column("value", value=lambda variable: variable[1]),
)
"""The columns of an environment."""


@as_keyboard_interrupt(signal.SIGTERM, signal.SIGHUP)
def launch(client: Client, args: SimpleNamespace) -> int:
    """Request a lease with a VM, and wait until the lease is ACTIVE."""
    columns = select(COLUMNS, args.c)
    request = {"cgpus": cgpus.from_options(args), "server": server_from_options(client, args)}
    if args.name:
        request["name"] = args.name
    answer = queue.request_lease(client, args, request)
    for sentence in answer.get("notes", []):
        print_note(sentence)
    lease = answer["lease"]
    called, vm = lease["id"], None
    try:
        called = finding.called_lease(client, lease)
        if not args.nowait:
            lease = wait_until(client, lease, lambda status: status not in ("CLAIMED", "BOOTING"))
            if lease["status"] == "ACTIVE":
                lease = _with_addresses(client, lease)
                if args.key and args.f == "table":
                    vm = client.vm(lease["server"]["id"])
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted, but {_goes_on(called)}") from None
    except ApiError:
        print_note(_goes_on(called))
        raise
    end = f"gsaas -t -id={called}"
    with given_back_unless_told(client, path_of(lease["id"]), f"lease {lease['id']}", end):
        print_resource(args, columns, lease, lease, lambda: describe(lease, called, vm))
    if not args.nowait:
        _check_active(lease)
    return 0


def _goes_on(called: str) -> str:
    return (
        f"the launch goes on: gsaas show {called} shows its status, gsaas -t -id={called} ends it"
    )


def _with_addresses(client: Client, lease: Lease) -> Lease:
    """Return an ACTIVE lease as the newest microversion that this program knows shows it."""
    path = path_of(lease["id"])
    try:
        newest: Lease = readings.with_readings(
            lambda version: client.request("GET", path, version=version)
        )["lease"]
    except ClientError:
        return lease  # it is ACTIVE all the same
    newest.pop("events", None)
    return newest


def _check_active(lease: Lease) -> None:
    """Raise `ClientError` if the lease is not ACTIVE."""
    if lease["status"] == "ACTIVE":
        return
    fault = lease.get("fault")
    if fault is None:  # it was terminated meanwhile
        raise ClientError(f"lease {lease['id']} did not become active: it is {lease['status']}")
    raise ClientError(f"lease {lease['id']} failed{_step(fault)}: {fault['message']}")


def terminate(client: Client, args: SimpleNamespace) -> int:
    """End leases, and wait until they are RELEASED. Those after one that cannot be ended are ended all the same."""
    columns = select(COLUMNS, args.c)
    if not args.id:
        require_id(None)
    several = len(args.id) > 1
    wanted: dict[str, tuple[str, Lease]] = {}
    before, ended, failed = [], [], 0

    def fail(called: str, error: ClientError) -> None:
        nonlocal failed
        if not several:
            raise error
        failed += 1
        print_error(f"{called}: {error}")

    # All are looked up before one is ended: afterwards, what called that may mean another one.
    for called in args.id:
        try:
            found = finding.lease(client, called)
            wanted.setdefault(found["id"], (called, found))
        except ClientError as error:
            fail(called, error)
    for lease_id, (called, found) in wanted.items():
        try:
            ended.append(client.request("DELETE", path_of(lease_id))["lease"])
            before.append(found)
        except ClientError as error:
            fail(called, error)
    if not args.nowait:
        ended = [_wait_for_release(client, lease) for lease in ended]
    lines = [_outcome(*each, args.nowait) for each in zip(before, ended, strict=True)]
    if not several:
        print_resource(args, columns, ended[0], ended[0], lambda: lines[0])
        return DONE
    print_list(args, columns, ended, ended, lambda: "\n".join(lines))
    if failed:
        print_error(f"{failed} of {len(args.id)} leases could not be ended")
    return FAILED if failed else DONE


def _wait_for_release(client: Client, lease: Lease) -> Lease:
    try:
        return wait_until(client, lease, lambda status: status == "RELEASED")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted, but lease {lease['id']} goes on being released"
        ) from None


def _outcome(before: Lease, lease: Lease, nowait: bool) -> str:
    """Return the line that says how a lease is after its end was requested, and what that gave back."""
    outcome = f", cGPUs released: {lease['cgpus']['count']}"
    if before["status"] == "QUEUED":
        outcome = ", its place in the queue is released"
    return f"lease {lease['id']}  {lease['status']}{'' if nowait else outcome}"


def release(client: Client, lease_id: str) -> None:
    """Request the end of a lease; one that has ended already is no error. Raises `ClientError`."""
    try:
        client.request("DELETE", path_of(lease_id))
    except ApiError as error:
        if error.status != 404:
            raise


def list_all(client: Client, args: SimpleNamespace) -> int:
    """List every lease that matches the options, from all pages."""
    from urllib.parse import urlencode

    columns = select(COLUMNS, args.c or LISTED)
    filters = {
        "status": args.status,
        "name": args.name,
        "all_projects": "true" if args.all else None,
        "sort_key": [key for key, _ in args.sort],
        "sort_dir": [direction for _, direction in args.sort],
        "changes-since": args.changes_since,
    }
    query = urlencode({key: value for key, value in filters.items() if value}, doseq=True)
    path = "/v1/leases" + (f"?{query}" if query else "")
    # An API of an older release is asked for nothing that it does not know.
    otherwise = finding.SORTING_VERSION if args.sort or args.changes_since else API_VERSION
    leases = readings.with_readings(
        lambda version: get_all(client, path, "leases", version), otherwise
    )["leases"]
    print_list(args, columns, leases, leases, lambda: _describe_all(leases))
    return 0


def _describe_all(leases: list[Lease]) -> str:
    """Return the table of leases, with ids that are short enough to type and long enough to tell them apart."""
    if not leases:
        return "no leases; gsaas -l -ncgpus=1 launches a VM with one cGPU"
    return brief_table([*select(COLUMNS, LISTED), AGE], leases)


def show(client: Client, args: SimpleNamespace) -> int:
    """Show one lease and its events."""
    columns = select(COLUMNS, args.c)
    lease = finding.lease(client, require_id(args.id), released=True)
    path = path_of(lease["id"])
    lease = readings.with_readings(lambda version: client.request("GET", path, version=version))[
        "lease"
    ]
    called = finding.called_lease(client, lease) if args.f == "table" else lease["id"]
    print_resource(args, columns, lease, lease, lambda: _describe_with_events(lease, called))
    return 0


def _describe_with_events(lease: Lease, called: str) -> str:
    described, events = describe(lease, called, took=True), lease.get("events")
    if not events:
        return described
    names = ["at", "event", "status"]
    if any(event["detail"] for event in events):  # for administrators only
        names.append("detail")
    rows = [[local(event["at"]), *(event[name] for name in names[1:])] for event in events]
    return f"{described}\n\n{table(names, rows)}"


def env(client: Client, args: SimpleNamespace) -> int:
    """Print the environment of a lease in the form that an option names."""
    forms = [form for form in ("shell", "dotenv", "json") if getattr(args, form)]
    if len(forms) > 1:
        raise UsageError(f"-{forms[0]} and -{forms[1]} cannot be combined")
    if forms and (args.f != "table" or args.c):
        raise UsageError(f"-{forms[0]} cannot be combined with -f or -c")
    columns = select(VARIABLES, args.c)
    lease = finding.lease(client, require_id(args.id))
    form = forms[0] if forms else "shell"
    if form == "json":
        args.f = "json"
    if args.f == "table" and not args.c:
        print_text(lines(client, lease, form))
        return 0
    document = variables(client, lease)
    print_list(args, columns, list(document.items()), document)
    return 0


def lines(client: Client, lease: Lease, form: str = "shell") -> str:
    """Return the environment of a lease as lines of the form `shell` or `dotenv`."""
    answer: str = environment(client, lease, form)
    return answer.removesuffix("\n")


def environment(client: Client, lease: Lease, form: str) -> Any:
    """Return the API's answer: text for the forms `shell` and `dotenv`, a document for `json`."""
    return client.request("GET", f"{path_of(lease['id'])}/environment?format={form}")


def variables(client: Client, lease: Lease) -> dict[str, str]:
    """Return the environment of a lease by variable."""
    found: dict[str, str] = environment(client, lease, "json")["environment"]
    return found


def server_from_options(client: Client, args: SimpleNamespace) -> dict[str, Any]:
    """Return Nova's server fields for the options given; the cloud chooses those that are missing.

    Raises `ClientError` for a name that cannot be resolved, and `UsageError` for user data that cannot be read.
    """

    def resolved(noun: str, name: str | None) -> str | None:
        return name and client.resolve(noun, name)

    fields = {
        "name": args.name,
        "imageRef": resolved("image", args.image),
        "flavorRef": resolved("flavor", args.flavor),
        "networks": [{"uuid": resolved("network", network)} for network in args.network],
        "key_name": args.key,
        "user_data": _user_data(args.userdata) if args.userdata else None,
    }
    return {name: value for name, value in fields.items() if value}


def _user_data(path: str) -> str:
    """Return the content of a file in base64, as Nova requires it."""
    from base64 import b64encode
    from pathlib import Path

    try:
        return b64encode(Path(path).read_bytes()).decode()
    except OSError as error:
        raise UsageError(f"-userdata={path} cannot be read: {error.strerror}") from None


def wait_until(client: Client, lease: Lease, done: Callable[[str], bool]) -> Lease:
    """Wait until *done* returns true for the status of a lease, showing the progress; return it as it is then.

    Raises `UnreachableError` if the API goes away meanwhile; the message names the lease, which stays.
    """
    pause, version = FIRST_PAUSE, version_of(lease)
    with Progress() as progress:
        seconds = INTERACTIVE_POLL if progress.interactive else POLL
        progress.show(lease["status"])
        while not done(status := lease["status"]):
            query = f"while_status={status}&timeout={seconds}"
            asked_at = monotonic()
            try:
                path = f"{path_of(lease['id'])}?{query}"
                lease = client.request("GET", path, version=version)["lease"]
            except UnreachableError as error:
                raise UnreachableError(f"{error} The lease is {lease['id']}") from error
            progress.show(lease["status"])
            if lease["status"] == status and monotonic() - asked_at < pause:
                sleep(pause)
                pause = min(pause * 1.5, LONGEST_PAUSE)
    return lease


def describe(lease: Lease, called: str, vm: Vm | None = None, *, took: bool = False) -> str:
    """Return a lease as text: its properties, its cGPUs, and the commands that come next.

    *called* is what these call the lease, *vm* how to log in to its VM; *took*: with how long each phase of its launch
    took.
    """
    server, consumer = lease["server"] or {}, lease["consumer"] or {}
    pairs = [
        ("lease", lease["id"]),
        ("name", lease["name"]),
        ("VM", server.get("id") if lease["server"] else "none"),
        ("asked", cgpus.asked(lease["cgpus"])),
        ("policy", lease["cgpus"]["policy"]),
        ("status", lease["status"]),
    ]
    if lease.get("queue"):
        pairs.append(("turn", queue.describe_position(lease["queue"])))
    if server.get("host"):
        pairs.insert(3, ("VM's host", server["host"]))
    if server.get("addresses"):
        pairs.insert(3, ("address", ", ".join(server["addresses"])))
    if vm is not None and vm.floating:
        pairs.insert(4, ("floating IP", ", ".join(vm.floating)))
    if consumer.get("host"):
        pairs.insert(3, ("used on", consumer["host"]))
    if lease["degraded"]:
        pairs.append(("degraded", "; ".join(lease.get("degraded_reasons", [UNKNOWN_REASON]))))
    if lease.get("fault"):
        pairs.append(("fault", _describe_fault(lease["fault"])))
    pairs += _activity(lease)
    dropped = {reason: n for reason, n in (lease.get("dropped_packets") or {}).items() if n}
    if dropped:
        pairs.append(("dropped", ", ".join(f"{n} {reason}" for reason, n in dropped.items())))
    pairs += [("problem", problem) for problem in lease.get("problems", [])]
    if took and lease["status"] == "ACTIVE" and lease.get("timings"):
        pairs.append(("took", _durations(lease["timings"])))
    parts = [facts(pairs)]
    if lease["devices"]:
        parts.append(_devices(lease))
    if lease["status"] in ("CLAIMED", "BOOTING", "ACTIVE"):
        parts.append(_next_commands(called, vm))
    return "\n\n".join(parts)


def _activity(lease: Lease) -> list[tuple[str, object]]:
    """Return what is known of the use of the cGPUs."""
    found: list[tuple[str, object]] = []
    for field in lease_fields.FIELDS:
        if field.line and (value := field.value(lease)) and lease["status"] in GOES_ON:
            away = describe_left(left(value, time()))
            found.append((field.heading, field.line.format(local(value), left=away)))
    busy, used = readings.utilisation(lease), readings.used_mb(lease)
    if busy is not None or used is not None:
        percent = "not known how" if busy is None else f"{busy:.0f} %"
        found.append(("in use", f"{percent} busy, {'-' if used is None else used} MiB"))
    sent = readings.per_second(readings.path(lease, "sent_bytes_per_second"))
    received = readings.per_second(readings.path(lease, "received_bytes_per_second"))
    if sent is not None and received is not None:
        connections = readings.path(lease, "connections")
        found.append(("path", f"{sent} sent, {received} received, connections: {connections}"))
    return found


def _durations(timings: dict[str, float]) -> str:
    """Return the phases of a launch with their durations, most of which are far below a second."""
    phases = ((phase.replace("_", " "), seconds) for phase, seconds in timings.items())
    return ", ".join(
        f"{phase} {seconds:.1f} s" if seconds >= 1 else f"{phase} {seconds * 1000:.1f} ms"
        for phase, seconds in phases
    )


def _devices(lease: Lease) -> str:
    """Return a table of the cGPUs; the API shows their GPUs only to administrators and some consumers."""
    headings_by_field = {
        "index": "cGPU",
        "masked_address": "masked address",
        "memory_mb": "MiB",
        "gpu_uuid": "GPU",
        "gpu_host": "on",
        "real_address": "real address",
    }
    fields = [name for name in headings_by_field if lease["devices"][0].get(name) is not None]
    headings = [headings_by_field[name] for name in fields]
    rows = [[device[name] for name in fields] for device in lease["devices"]]
    if "gpu_uuid" in fields:  # then there is no room for the mode, which is that of them all
        leasts = {"gpu_uuid": 12, "gpu_host": 6}
        return fitted(headings, rows, [leasts.get(name) for name in fields])
    after_memory = fields.index("memory_mb") + 1
    headings.insert(after_memory, "mode")
    for row in rows:
        row.insert(after_memory, lease["cgpus"]["mode"])
    return table(headings, rows)


def size(cgpus: dict[str, Any]) -> str:
    """Return how much of a GPU each of *cgpus* is."""
    return f"{cgpus['memory_mb']} MiB" if cgpus["memory_mb"] else "whole GPU"


def _next_commands(called: str, vm: Vm | None) -> str:
    login = None if vm is None else vms.ssh(vm)
    return facts(
        [
            *([login] if login else []),
            (f"gsaas env {called}", "what programs need to find its cGPUs"),
            (f"gsaas -t -id={called}", "end it"),
        ]
    )


def _describe_fault(fault: dict[str, str | None]) -> str:
    """Return what was wrong; at which step is left out where the message is about that step itself."""
    message = str(fault["message"])
    return message if fault["step"] == QUEUE_STEP else f"{message}{_step(fault)}"


def _step(fault: dict[str, str | None]) -> str:
    return f" at {fault['step']}" if fault["step"] else ""


def path_of(lease_id: str) -> str:
    """Return where the API has a lease."""
    return finding.path_of(finding.LEASES, lease_id)


def require_id(name_or_id: str | None) -> str:
    """Return *name_or_id*. Raises `UsageError` if it is None."""
    if name_or_id is None:
        raise UsageError("-id is needed: a lease's id, its VM's id, or a lease's name")
    return name_or_id
