# SPDX-License-Identifier: Apache-2.0
"""Options that several commands of `gsaas` have."""

from __future__ import annotations

from gsaasclient.cli.parser import FOREVER, Option, any_number, capability, one_of, whole_number
from gsaasclient.quantities import memory_mb, seconds
from gsaasclient.times import for_api

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
TIMES = """\
A TIME is such as tomorrow 9:00, friday 8:00, +2h, 2026-12-01T09:00+01:00 or 2026-12-01, which is
its midnight. It is in the time zone of this machine unless it has an offset or ends in Z."""
"""What the help says of options that take a time."""
LEASE_NAME = Option("name", "NAME", "a name for the lease")

CGPUS = (
    Option("ncgpus", "N", "number of cGPUs", convert=whole_number),
    Option(
        "kind",
        "cuda|cpu",
        "cuda: GPUs of NVIDIA; cpu: CPU devices, which are cores and memory of hosts (default: what the operator "
        "has chosen)",
        convert=one_of("cuda", "cpu"),
    ),
    Option(
        "mode",
        "exclusive|shared",
        "exclusive: each cGPU is a whole GPU that no other lease uses; shared: each is a part of a GPU's memory "
        "(default: shared with -poolmem, else exclusive)",
        convert=one_of("exclusive", "shared"),
    ),
    Option(
        "poolmem",
        "SIZE",
        "GPU memory of each cGPU, such as 2G, or 2048 for MiB: a part of a GPU, which others may share",
        convert=memory_mb,
        aliases=("memory",),
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
    Option(
        "capability",
        "X.Y",
        "only GPUs of at least this CUDA compute capability, such as 8.0",
        convert=capability,
    ),
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
        "DURATION",
        "if the request does not fit now, wait in the queue until it does; for at most a DURATION, if given, such as "
        "10m, 2h, or 90 for seconds",
        convert=seconds,
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

END = (
    Option(
        "for",
        "DURATION",
        "how long the lease lasts from when it has its cGPUs, such as 8h, 30m or 2d; then it is ended, and its VM, "
        "if it has one, destroyed",
        convert=seconds,
        mistaken_names=("duration", "time", "walltime"),
    ),
    Option(
        "until",
        "TIME",
        "when the lease ends, such as 18:00, 'tomorrow 9:00' or 2026-12-01T09:00+01:00",
        convert=for_api,
        mistaken_names=("ends-at", "ends_at", "end"),
    ),
)

NEW_END = (
    Option(
        "for",
        "[+]DURATION",
        "how long it lasts from when it has its cGPUs, such as 8h; with a +, how much longer than now",
        convert=lambda value: _new_duration(value),
    ),
    Option(
        "until",
        "TIME|never",
        "when it ends, such as 18:00, 'tomorrow 9:00' or 2026-12-01T09:00+01:00; never: it has no end any more",
        convert=lambda value: value if value == "never" else for_api(value),
    ),
)

MOVABLE = Option(
    "movable",
    "idle|cut",
    "idle (default): operators move the lease to other GPUs while none of its connections is open; cut: "
    "they may also cut those that are open, and its programs have to start again",
    convert=one_of("idle", "cut"),
)

RESERVATION = Option(
    "reservation",
    "ID",
    "launch in this reservation of your project: its id or name; gsaas reservations lists them",
)

SERVER = (
    Option("image", "IMAGE", "image that the VM boots from: its name or id (default: the cloud's)"),
    Option("flavor", "FLAVOR", "flavor of the VM: its name or id (default: the cloud's)"),
    Option(
        "network",
        "NETWORK",
        "network to attach: its name or id; may be repeated (default: the cloud's)",
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
        "the only user whose programs can use the cGPUs at masked addresses (default: you)",
        convert=lambda value: _user_id(value),
    ),
)


def _new_duration(value: str) -> object:
    from gsaasclient.cli.changes import duration

    return duration(value)


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
    return value if value == "default" else seconds(value)


def no_time_or(value: str) -> int:
    """Convert to a number of seconds, which may be 0. Raises `ValueError`."""
    return 0 if value == "0" else seconds(value)


def lease_id(description: str, *, repeatable: bool = False) -> Option:
    """Return the option `-id`."""
    return Option(
        "id",
        "ID",
        f"{description}: a lease's id or the beginning of it, its VM's, or its name",
        repeatable=repeatable,
    )


def service_options(noun: str) -> tuple[Option, ...]:
    """Return the options with which an operator takes a GPU or host out of service."""
    return (
        Option("disable", noun, "offer it to no more leases; those that have claimed it keep it"),
        Option("enable", noun, "offer it again"),
        REASON,
        *OUTPUT,
    )
