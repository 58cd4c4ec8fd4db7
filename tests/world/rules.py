# SPDX-License-Identifier: Apache-2.0
"""What has to hold in a world: pure functions over what there is. Each returns sentences about what is broken."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from gsaas.notifications.events import of_lease
from gsaas.objects.address import Address
from gsaas.objects.lifecycle import TRANSITIONS, Event, Status
from tests.world.snapshot import Outside, Row, Stored

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OVER = (Status.RELEASED,)
AT_REST = (Status.QUEUED, Status.ACTIVE, Status.RELEASED, Status.ERROR)


def after_each_step(stored: Stored, outside: Outside, forgotten: Collection[str] = ()) -> list[str]:
    """Return what is broken now, whatever is under way; *forgotten* are hosts that once were so."""
    return [
        *over_committed(stored),
        *released_leases_have_nothing(stored),
        *one_server_each(outside),
        *only_leases_are_mapped(stored, outside, forgotten),
        *only_leases_are_admitted(stored, outside),
        *only_claims_have_daemons(stored, outside),
    ]


def over_committed(stored: Stored) -> Iterator[str]:
    """No GPU is claimed beyond its memory, and one in exclusive mode by one lease."""
    by_gpu: dict[str, list[Row]] = defaultdict(list)
    for claim in stored.claims:
        by_gpu[claim["gpu_uuid"]].append(claim)
    for uuid, gpu in stored.gpus.items():
        claims = by_gpu[uuid]
        used = sum(claim["memory_mb"] for claim in claims)
        if used > gpu["memory_mb"]:
            yield f"over-committed: {uuid} has {gpu['memory_mb']} MiB, and {used} are claimed"
        if used + gpu["reserved_mb"] > gpu["memory_mb"]:
            yield f"over-committed: {used} MiB of {uuid} are claimed, and {gpu['reserved_mb']} are kept"
        if used != gpu["used_mb"]:
            yield f"miscounted: {used} MiB of {uuid} are claimed, and {gpu['used_mb']} are counted"
        holders = {claim["lease_id"] for claim in claims}
        exclusive = {holder for holder in holders if stored.leases[holder]["mode"] == "exclusive"}
        if exclusive and len(holders) > 1:
            yield f"not exclusive: {uuid} is claimed by {', '.join(sorted(holders))}"
    for uuid in by_gpu.keys() - stored.gpus.keys():
        yield f"lost: GPU {uuid} is claimed, and is not there"


def released_leases_have_nothing(stored: Stored) -> Iterator[str]:
    """A lease that is over has returned all that it claimed."""
    for claim in stored.claims:
        if stored.leases[claim["lease_id"]]["status"] in OVER:
            yield f"lost claim: {claim['lease_id']} is released, and has a claim of {claim['gpu_uuid']}"


def answers_are_true(
    stored: Stored, answered: Iterable[str], ended: Iterable[str]
) -> Iterator[str]:
    """A lease whose launch was answered is stored; one whose end was answered ends, and stays so."""
    for lease_id in answered:
        if lease_id not in stored.leases:
            yield f"answer: the launch of lease {lease_id} was answered, and it is not stored"
    for lease_id in sorted(ended):
        status = stored.leases[lease_id]["status"] if lease_id in stored.leases else "not stored"
        if status not in (Status.RELEASING, *OVER):
            yield f"answer: the end of lease {lease_id} was answered, and it is {status}"


def used(stored: Stored) -> Counter[str]:
    """Return how many cGPUs each project has; one that moves counts once."""
    return Counter(
        stored.leases[claim["lease_id"]]["project_id"]
        for claim in stored.claims
        if claim["position"] >= 0
    )


def over_quota(used: Counter[str], before: Counter[str], quota: int) -> list[str]:
    """No project gets more cGPUs than its quota; what it had *before* that was lowered, it keeps."""
    return [
        f"over quota: project {project} has {number} cGPUs of {quota}"
        for project, number in sorted(used.items())
        if number > quota and number > before[project]
    ]


def one_server_each(outside: Outside) -> Iterator[str]:
    """No lease has two servers."""
    counted = Counter(tag for _, tag in outside.servers if tag is not None)
    for tag, number in sorted(counted.items()):
        if number > 1:
            yield f"two servers: lease {tag} has {number}"


def served_past_others(
    before: Stored,
    stored: Stored,
    known_since: Mapping[str, float],
    asked_at: Mapping[str, float],
    now: str,
    quota: int,
) -> Iterator[str]:
    """No lease gets GPUs while another waits of the same or a higher priority that was there when it was asked for.

    All GPUs are alike: whoever waits keeps the others from all of them, with backfill, too. Passed over are only those
    that have no time left, whose clients may be silent, or whose *quota* may not allow them now.
    """
    had = {claim["lease_id"] for claim in before.claims}
    new = {claim["lease_id"] for claim in stored.claims} - had
    if not new:
        return
    most = (used(before) | used(stored)) + Counter(before.reserved) + Counter(stored.reserved)
    waiting = [
        row
        for key, row in stored.leases.items()
        if key in known_since
        and before.leases.get(key, row)["status"] == row["status"] == Status.QUEUED
        and row["reservation_id"] is None
        and _still_waits(row, now)
        and most[row["project_id"]] + row["count"] <= quota
    ]
    for lease_id in sorted(new):
        mine = stored.leases[lease_id]
        asked = asked_at.get(mine["name"])
        if asked is None or mine["reservation_id"] is not None:
            continue
        former = before.leases.get(lease_id, mine)
        priority = max(mine["priority"], former["priority"])
        for other in waiting:
            least = min(other["priority"], before.leases.get(other["id"], other)["priority"])
            if known_since[other["id"]] < asked and least >= priority:
                yield f"queue: lease {lease_id} got GPUs, and {other['id']} waits since before it was asked for"


def _served_at(stored: Stored, claim: Row) -> set[tuple[str, int]]:
    """Return address and port of what serves a claim."""
    gpu = stored.gpus[claim["gpu_uuid"]]
    port = claim["daemon_port"] or gpu["daemon_port"]
    return {(ip, port) for ip in stored.addresses.get(gpu["host_name"], ())}


def only_leases_are_mapped(
    stored: Stored, outside: Outside, forgotten: Collection[str]
) -> Iterator[str]:
    """What a VM or a program reaches through RODVR, or is connected to, is claimed by its lease.

    *forgotten* are hosts that once were so.
    """
    by_port = {row["port_id"]: key for key, row in stored.leases.items() if row["port_id"]}
    claimed: dict[str, set[tuple[str, int]]] = defaultdict(set)
    dropped: dict[str, set[str]] = defaultdict(set)
    for claim in stored.claims:
        claimed[claim["lease_id"]] |= _served_at(stored, claim)
        if (
            claim["daemon_port"] is None
            and stored.gpus[claim["gpu_uuid"]]["host_name"] in forgotten
        ):
            dropped[claim["lease_id"]] |= {ip for ip, _ in _served_at(stored, claim)}

    def may_reach(lease_id: str | None, real: Address) -> bool:
        if lease_id is None:
            return False
        if (real.ip, real.port) in claimed[lease_id]:
            return True
        # Its daemon went with a host that an operator has forgotten: nobody is there, as long as nobody else is.
        is_anothers = any((real.ip, real.port) in each for each in claimed.values())
        return real.ip in dropped[lease_id] and not is_anothers

    for host, port_id, real in outside.mappings + outside.connections:
        lease_id = by_port.get(port_id, port_id)
        if not may_reach(lease_id, real):
            status = stored.leases.get(lease_id, {}).get("status", "unknown")
            yield (
                f"mapped: on {host}, port {port_id} of lease {lease_id} ({status}) reaches {real}, which it has not"
                " claimed"
            )
    users = {
        (row["masked_host"], row["masked_ip"], row["masked_port"]): row["lease_id"]
        for row in stored.claims
    }
    for host, masked, real in outside.local_mappings + outside.local_connections:
        user = users.get((host, masked.ip, masked.port))
        if not may_reach(user, real):
            yield (
                f"mapped: on {host}, programs reach {real} at {masked}, which is of lease {user},"
                " and which it has not claimed"
            )


def only_leases_are_admitted(stored: Stored, outside: Outside) -> Iterator[str]:
    """Whom a fence admits, redeemed the grant of a lease, which has not returned its claim.

    A compute host may be admitted for longer: without a mapping none of its VMs and programs reaches anything there.
    """
    granted = {
        (ip, port, stored.leases[claim["lease_id"]]["admitted_address"])
        for claim in stored.claims
        for ip, port in _served_at(stored, claim)
    }
    for host, each in outside.admissions:
        served = {(ip, each.port, each.address) for ip in stored.addresses.get(host, ())}
        if each.address not in outside.host_addresses and not served & granted:
            yield f"admitted: the fence of {host} admits {each}, which no lease wants"


def only_claims_have_daemons(stored: Stored, outside: Outside) -> Iterator[str]:
    """A daemon of a lease runs only while the lease has the claim that it serves."""
    claimed = {
        (claim["daemon_host"], claim["lease_id"], claim["daemon_port"]) for claim in stored.claims
    }
    for host, lease_id, port in outside.daemons:
        if (host, lease_id, port) not in claimed:
            yield f"daemon: {host} runs one for lease {lease_id} at port {port}, which it has not claimed"


def edges(
    events: Iterable[Row], leases: Mapping[str, Row]
) -> tuple[set[tuple[str, str]], list[str]]:
    """Return which edges of the table of lifecycle the leases went along, and what is not one of them."""
    taken: set[tuple[str, str]] = set()
    broken: list[str] = []
    status: dict[str, str] = {}
    for row in events:
        lease_id, event, after = row["lease_id"], row["event"], row["status"]
        before = status.get(lease_id)
        status[lease_id] = after
        if before is None or before == after:
            continue
        try:
            follows = TRANSITIONS.get((Status(before), Event(event)))
        except ValueError:
            follows = None
        if follows != after:
            broken.append(f"status: lease {lease_id} went from {before} to {after} by {event}")
        else:
            taken.add((before, event))
    for lease_id, row in leases.items():
        if status.get(lease_id, row["status"]) != row["status"]:
            broken.append(
                f"status: lease {lease_id} is {row['status']}, and its events say {status[lease_id]}"
            )
    return taken, broken


def queue_order(events: Iterable[Row], leases: Mapping[str, Row]) -> Iterator[str]:
    """Of two leases of a project that wait for the same, the one that came first is served first."""
    waiting: set[str] = set()
    for row in events:
        lease_id = row["lease_id"]
        if row["status"] == Status.QUEUED:
            waiting.add(lease_id)
            continue
        if lease_id not in waiting:
            continue
        waiting.remove(lease_id)
        if row["event"] != Event.CLAIM:
            continue
        mine = leases[lease_id]
        for other in sorted(waiting):
            its = leases[other]
            is_before = its["queued_at"] < mine["queued_at"] and _still_waits(its, row["at"])
            if is_before and _is_alike(mine, its):
                yield f"queue: lease {lease_id} was served before {other}, which waits for longer"


def _still_waits(row: Row, now: str) -> bool:
    """Return whether a lease of the queue has time left, and a client that is surely there."""
    has_time = all(end is None or end > now for end in (row["wait_until"], row["ends_at"]))
    return has_time and row["waiter_seen_at"] is None


def _is_alike(one: Row, other: Row) -> bool:
    names = (
        "project_id priority count mode memory_mb locality requirements reservation_id consumer_host"
        " has_server duration"
    )
    return all(one[name] == other[name] for name in names.split())


def all_is_at_rest(stored: Stored, outside: Outside) -> Iterator[str]:
    """Every lease waits for nobody but its owner, and whoever has an ACTIVE lease can use it.

    A host that is drained has only leases of which it is said why they are still there.
    """
    for key, row in stored.leases.items():
        if row["status"] not in AT_REST or row["moving"]:
            yield f"{row['moving'] or row['status']}: lease {key}"
    for claim in stored.claims:
        host = stored.gpus[claim["gpu_uuid"]]["host_name"]
        if host in stored.drained and claim["lease_id"] not in stored.drained[host]:
            yield f"drained: {host} has lease {claim['lease_id']}, and nobody says why"
    mapped = {(host, port_id, real.ip, real.port) for host, port_id, real in outside.mappings}
    mapped |= {
        (host, masked.ip, real.ip, real.port) for host, masked, real in outside.local_mappings
    }
    for claim in stored.claims:
        lease = stored.leases[claim["lease_id"]]
        if lease["status"] != Status.ACTIVE or claim["position"] < 0:
            continue
        host, daemon = claim["daemon_host"], claim["daemon_port"]
        if daemon is not None and (host, lease["id"], daemon) not in outside.daemons:
            yield f"unusable: {host} runs no daemon for lease {lease['id']} at port {daemon}"
        bound = lease["bound_host"]
        user = lease["port_id"] if lease["has_server"] else claim["masked_ip"]
        ways = {(bound, user, *served) for served in _served_at(stored, claim)}
        if bound is not None and not ways & mapped:
            yield f"unusable: on {bound}, {user} of lease {lease['id']} does not reach what it has claimed"


def nothing_is_left(stored: Stored, outside: Outside) -> list[str]:
    """Return what is there although every lease has ended."""
    return [
        *(
            f"left: lease {key} is {row['status']}"
            for key, row in stored.leases.items()
            if row["status"] not in OVER
        ),
        *(f"left: a claim of {each['gpu_uuid']} by {each['lease_id']}" for each in stored.claims),
        *(
            f"left: {gpu['used_mb']} MiB, {gpu['leases']} leases and {gpu['reserved_mb']} reserved MiB of {uuid}"
            for uuid, gpu in stored.gpus.items()
            if gpu["used_mb"] or gpu["leases"] or gpu["reserved_mb"] or gpu["exclusive_lease_id"]
        ),
        *(f"left: server {key} of lease {tag}" for key, tag in outside.servers if tag),
        *(f"left: on {host}, port {port} reaches {real}" for host, port, real in outside.mappings),
        *(f"left: on {host}, programs reach {real}" for host, _, real in outside.local_mappings),
        *(f"left: the fence of {host} admits {each}" for host, each in outside.admissions),
        *(f"left: {host} runs a daemon of lease {lease}" for host, lease, _ in outside.daemons),
    ]


def secrets_are_kept(told: Iterable[str], secrets: Iterable[str]) -> Iterator[str]:
    """Nothing that is told, in a log, a message or a notification, has a token or a key."""
    for text in told:
        for secret in secrets:
            if secret in text:
                yield f"secret: it was told: {text}"


def same_answers(answers: Mapping[str, list[Any]]) -> Iterator[str]:
    """A key is a register that is written once: each launch with it returned the same lease."""
    for key, ids in sorted(answers.items()):
        if len(set(ids)) > 1:
            yield f"repeated: key {key} has made leases {', '.join(sorted(set(ids)))}"


def answers_are_private(
    project: str, owners: Mapping[str, str], asked: str, status: int, text: str
) -> Iterator[str]:
    """No answer is about a lease of another project, but to say that there is none."""
    foreign = {key for key, owner in owners.items() if owner != project}
    for key in sorted(foreign & set(_UUID.findall(text))):
        if key not in asked:
            yield f"private: {asked} of project {project} was answered with lease {key} of another"
    if 0 < status < 400 and foreign & set(_UUID.findall(asked)):
        yield f"private: project {project} was answered {status} to {asked} of another project"


def notified_once(notified: Iterable[tuple[str, Any]], events: Iterable[Row]) -> Iterator[str]:
    """Each notification about a lease is of one of its events, which is stored; nobody is told twice."""
    told = Counter(
        (payload["gsaas_object.data"]["id"], event_type)
        for event_type, payload in notified
        if event_type.startswith("lease.")
    )
    happened: Counter[tuple[str, str]] = Counter()
    for row in events:
        # Whether it waited decides only whether its launch has a notification more.
        for event_type in {
            *of_lease(row["event"], waited=True),
            *of_lease(row["event"], waited=False),
        }:
            happened[row["lease_id"], event_type] += 1
    for (lease_id, event_type), times in sorted(told.items()):
        if times > happened[lease_id, event_type]:
            yield (
                f"notified: {times} times of {event_type} of lease {lease_id}, which has happened"
                f" {happened[lease_id, event_type]} times"
            )
