# SPDX-License-Identifier: Apache-2.0
"""The fields of a lease, each described once, for `gsaas`, `openstack`, the SDK and the dashboard.

A new field is one row of `FIELDS`, and its name in the views that show it. Nothing else in these clients changes.
"""

from __future__ import annotations

from collections.abc import Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Field:
    """A field of a lease as the API shows it, or of an object in a lease.

    name       for `-c` of `gsaas`, and in `openstack gpu lease show`
    path       the member of the lease, and that member's member if the field is in an object; by default *name*
    kind       the type of its value, for the SDK; None for a text
    attribute  the SDK's attribute, by default the member
    heading    in tables of `gsaas`; by default *name*
    title      in lists of `openstack`
    since      the first microversion that has it; columns of `gsaas` that not every API has are printed only for `-c`
    is_time    whether it is a time, as its name says
    line       for a time of a lease that goes on: how `gsaas show` prints it; `{left}` is how far away it is
    warning    for a time that its owner has to know: how the dashboard announces it, in the state and in a sentence
    """

    def __init__(
        self,
        name: str,
        path: tuple[str, ...] = (),
        kind: type | None = None,
        *,
        attribute: str | None = None,
        heading: str | None = None,
        title: str | None = None,
        since: str = "1.0",
        line: str | None = None,
        warning: tuple[str, str] | None = None,
    ) -> None:
        self.name = name
        self.path = path or (name,)
        self.kind = kind
        self.attribute = attribute or self.path[0]
        self.heading = heading or name
        self.title = title or name
        self.since = since
        self.is_time = name.endswith(("_at", "_since", "_until"))
        self.line = line
        self.warning = warning

    def value(self, lease: dict[str, Any]) -> Any:
        """Return its value in *lease*, as the API shows that; None where the lease has no such field."""
        found: Any = lease
        for member in self.path:
            found = (found or {}).get(member)
        return found

    def value_of(self, lease: Any) -> Any:
        """Return its value in *lease*, a resource of the SDK; None where the lease has no such field."""
        found = getattr(lease, self.attribute)
        return found if len(self.path) == 1 else (found or {}).get(self.path[1])


OBJECTS = ("cgpus", "server", "fault", "usage")
"""Members of a lease that are shown by the fields in them only."""

FIELDS = (
    Field("id", heading="lease", title="ID"),
    Field("name", title="Name"),
    Field("status", title="Status"),
    Field("project_id", heading="project", title="Project ID"),
    Field("user_id", title="User ID"),
    Field("cgpus", ("cgpus", "count"), heading="cGPUs", title="cGPUs"),
    Field("kind", ("cgpus", "kind"), title="Kind", since="1.9"),
    Field("mode", ("cgpus", "mode"), title="Mode"),
    Field("memory_mb", ("cgpus", "memory_mb"), heading="each", title="Memory MiB"),
    Field("locality", ("cgpus", "locality"), title="Locality"),
    Field("policy", ("cgpus", "policy"), title="Policy"),
    Field("gpu_model", ("cgpus", "gpu_model")),
    Field("compute_capability", ("cgpus", "compute_capability")),
    Field("hosts", ("cgpus", "hosts")),
    Field("host", ("cgpus", "host")),
    Field("access"),
    Field("devices", kind=list),
    Field("remoting"),
    Field("server_id", ("server", "id"), heading="VM", title="Server ID"),
    Field("addresses", ("server", "addresses"), list, title="Addresses", since="1.11"),
    Field("server_host", ("server", "host"), heading="VM's host"),
    Field("consumer", kind=dict),
    Field("consumer_host", ("consumer", "host"), heading="used on", title="Consumer Host"),
    Field("reservation", since="1.7"),
    Field("priority", kind=int),
    Field("queue", kind=dict),
    Field("position", ("queue", "position"), heading="turn", title="Queue Position"),
    Field("degraded", kind=bool, attribute="is_degraded", title="Degraded"),
    Field("degraded_reasons", kind=list),  # for administrators only
    Field("fault", ("fault", "message")),
    Field("queued_at"),
    Field("wait_until"),
    Field("kept_until"),
    Field("created_at", heading="since", title="Created At"),
    Field("updated_at", title="Updated At"),
    Field("claimed_at", title="Claimed At", since="1.11"),
    Field("released_at", title="Released At"),
    Field("gpu_hours", ("usage", "gpu_hours"), title="GPU Hours", since="1.11"),
    Field("mean_utilisation", ("usage", "mean_utilisation"), title="Mean %", since="1.11"),
    Field("peak_utilisation", ("usage", "peak_utilisation"), title="Peak %", since="1.11"),
    Field("peak_memory_mb", ("usage", "peak_memory_mb"), title="Peak MiB", since="1.11"),
    Field("idle_since", heading="idle since", title="Idle Since", since="1.5", line="{}"),
    Field(
        "reclaim_at",
        heading="ends at",
        title="Reclaim At",
        since="1.6",
        line="{}, unless something uses it before",
        warning=("idle, ends at {}", "It is idle, and ends at {} unless something uses it before."),
    ),
    Field("duration", kind=int, since="1.11"),
    Field("ends_at", heading="ends", title="Ends At", since="1.11", line="{left}, at {}"),
    Field("movable", title="Movable", since="1.11"),
    Field(
        "cut_at",
        heading="cut at",
        title="Cut At",
        since="1.11",
        line="{left}, at {}: its connections, because its GPU host is drained",
        warning=(
            "connections are cut at {}",
            "The host of its GPUs is drained: connections that are open are cut at {}, and its programs have to start "
            "again.",
        ),
    ),
    Field("reading", kind=dict, since="1.5"),
    Field("dropped_packets", kind=dict),
    Field("problems", kind=list, since="1.10"),
    Field("timings", kind=dict),
    Field("events", kind=list),  # of a lease that is read alone
)

GSAAS = (
    *("id", "name", "status", "project_id", "cgpus", "mode", "memory_mb", "locality", "policy"),
    *("server_id", "server_host", "consumer_host", "position", "degraded", "fault", "created_at"),
    *("idle_since", "reclaim_at", "kind", "problems", "ends_at", "addresses", "movable"),
)
"""The columns of `gsaas`."""
TABLE = ("id", "name", "status", "cgpus", "memory_mb", "server_id")
"""Those that `gsaas list` shows by itself; it shows others where leases have them."""
OPENSTACK_LIST = ("id", "name", "status", "cgpus", "mode", "memory_mb", "server_id")
"""The columns of `openstack gpu lease list`."""
OPENSTACK_ENDED = (
    *("id", "name", "claimed_at", "released_at", "cgpus", "memory_mb", "gpu_hours"),
    *("mean_utilisation", "peak_utilisation", "peak_memory_mb"),
)
"""Those with `--ended`."""
OPENSTACK_LONG = (
    *OPENSTACK_LIST,
    *(
        "degraded",
        "kind",
        "locality",
        "policy",
        "project_id",
        "user_id",
        "consumer_host",
        "position",
    ),
    *("idle_since", "reclaim_at", "ends_at", "movable", "created_at", "updated_at"),
)
"""Those with `--long`."""
OPENSTACK_SHOW = (
    *("id", "name", "status", "fault", "degraded", "project_id", "user_id", "cgpus", "kind"),
    *(
        "mode",
        "memory_mb",
        "locality",
        "policy",
        "gpu_model",
        "compute_capability",
        "hosts",
        "host",
    ),
    *("access", "devices", "server_id", "addresses", "server_host", "consumer", "reservation"),
    *("priority", "queue", "queued_at", "wait_until", "kept_until", "created_at", "updated_at"),
    *("claimed_at", "released_at"),
    *("gpu_hours", "mean_utilisation", "peak_utilisation", "peak_memory_mb"),
    *("duration", "ends_at", "movable", "cut_at"),
    *("idle_since", "reclaim_at", "reading", "dropped_packets", "problems", "timings"),
)
"""The fields of `openstack gpu lease show`."""


def named(names: Sequence[str]) -> list[Field]:
    """Return the fields with these names, in this order."""
    by_name = {field.name: field for field in FIELDS}
    return [by_name[name] for name in names]


def version_key(version: str) -> list[int]:
    """Return the numbers of a microversion, by which microversions can be ordered."""
    return [int(number) for number in version.split(".")]


def versions(names: Sequence[str]) -> list[str]:
    """Return the microversions above the oldest that have brought some of these fields, newest first."""
    found = {field.since for field in named(names)} - {"1.0"}
    return sorted(found, key=version_key, reverse=True)
