# SPDX-License-Identifier: Apache-2.0
"""What clients, tenants and operators do. Each operation is a client's task of its own, which nobody waits for."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oslo_db import exception as db_exception

from gsaas.api import newer_fields, schemas
from tests.world import clients, facade, processes
from tests.world.clients import Answer
from tests.world.table import Act, happens

if TYPE_CHECKING:
    from tests.world.world import World

TENANTS = ("member", "stranger")
"""Each of another project."""
PRUNERS = {
    version: newer_fields.pruner(schemas.leases.CREATE, version) for version in clients.versions()
}
"""What leaves out of a launch the fields that are newer than a microversion."""


def operation(weight: float = 1.0, most: int = 1) -> Callable[[Act], Act]:
    """Add the decorated function to the table, as what clients do in tasks of their own, up to *most* at once."""

    def add(act: Act) -> Act:
        def begin(world: World, draw: random.Random) -> None:
            for number in [draw.getrandbits(32) for _ in range(draw.randint(1, most))]:
                world.scheduler.spawn(
                    act.__name__,
                    lambda number=number: act(world, random.Random(number)),  # type: ignore[misc]
                    world.clients,
                )

        begin.__name__ = act.__name__
        happens(weight)(begin)
        return act

    return add


def _cgpus(draw: random.Random) -> dict[str, Any]:
    asked: dict[str, Any] = {"count": draw.choice((1, 1, 1, 2))}
    if draw.random() < 0.75:
        asked |= {"mode": "shared", "memory_mb": draw.choice((2048, 4096, 8192))}
    if draw.random() < 0.2:
        asked["hosts"] = draw.choice(("one", "spread"))
    return asked


def _some(draw: random.Random, ids: list[str]) -> str:
    """Return one of *ids*, rather a late one; one that nothing has if there is none."""
    if not ids:
        return "00000000-0000-4000-8000-000000000000"
    return ids[-1 - min(int(draw.expovariate(0.3)), len(ids) - 1)]


def launch(world: World, draw: random.Random, lease: dict[str, Any], caller: str) -> Answer:
    """Launch a lease, with a key mostly; repeat a launch with a key whose answer was lost."""
    version = clients.NEWEST if draw.random() < 0.6 else draw.choice(clients.versions())
    prune = PRUNERS.get(version)
    lease["name"] = f"lease-{draw.getrandbits(40):x}"
    body = prune({"lease": lease}) if prune else {"lease": lease}
    key = f"key-{draw.getrandbits(40):x}" if draw.random() < 0.7 else None
    world.asked_at[lease["name"]] = world.scheduler.now
    for _ in range(3 if key else 1):
        answer = clients.call(world, caller, "POST", "/v1/leases", body, version=version, key=key)
        if answer.is_known and answer.status < 500:
            break
        world.scheduler.sleep(10 * draw.random())
    if answer.status in (200, 201, 202):
        lease_id = answer.body["lease"]["id"]
        world.leases.append(lease_id)
        world.known_since.setdefault(lease_id, world.scheduler.now)
        world.counted[f"launch in {version}"] += 1
        if key is not None:
            world.answers.setdefault(key, []).append(lease_id)
            if draw.random() < 0.3:  # once more, although it was answered
                again = clients.call(
                    world, caller, "POST", "/v1/leases", body, version=version, key=key
                )
                if again.status in (200, 201, 202):
                    world.answers[key].append(again.body["lease"]["id"])
    return answer


def end(world: World, caller: str, lease_id: str, version: str = clients.NEWEST) -> None:
    """End a lease, and note it if the answer says so."""
    path = f"/v1/leases/{lease_id}"
    if clients.call(world, caller, "DELETE", path, version=version).status == 202:
        world.ended.add(lease_id)


def _queued(draw: random.Random) -> dict[str, Any]:
    if draw.random() < 0.3:
        return {}
    found: dict[str, Any] = {"wait": draw.choice((20, 100, 300, None))}
    if draw.random() < 0.1:
        found["priority"] = -draw.randrange(1, 5)
    return found


def _movable(draw: random.Random) -> dict[str, Any]:
    return {"movable": draw.choice(("idle", "cut"))} if draw.random() < 0.3 else {}


@operation(8, most=3)
def launch_vm(world: World, draw: random.Random) -> None:
    server: dict[str, Any] = {"imageRef": draw.choice(("debian", "debian", "debian", "none"))}
    lease = {"cgpus": _cgpus(draw), "server": server, **_queued(draw), **_movable(draw)}
    if draw.random() < 0.15:
        lease["duration"] = draw.randrange(30, 300)
    launch(world, draw, lease, draw.choice(TENANTS))


@operation(5, most=3)
def launch_without_vm(world: World, draw: random.Random) -> None:
    consumer: dict[str, Any] = draw.choice(
        (
            {},
            {"host": "compute1"},
            {"host": "compute2", "uid": 1000},
            {"host": "gpu1"},
            {"address": "10.9.9.9"},
        )
    )
    lease = {"cgpus": _cgpus(draw), "server": None, "consumer": consumer, **_queued(draw)}
    lease |= _movable(draw)
    if draw.random() < 0.3:
        lease["keepalive"] = draw.choice((10, 30, 120))
    launch(world, draw, lease, draw.choice(TENANTS))


@operation(6, most=3)
def launch_briefly(world: World, draw: random.Random) -> None:
    """Use cGPUs for seconds, as a test does: what is under way for the lease arrives when it is over."""
    caller = draw.choice(TENANTS)
    consumer = draw.choice(({"host": "compute1"}, {"host": "compute2"}, {}))
    cgpus = {"count": 1, "mode": "shared", "memory_mb": 1024}
    answer = launch(world, draw, {"cgpus": cgpus, "server": None, "consumer": consumer}, caller)
    if answer.status not in (201, 202):
        return
    lease_id = answer.body["lease"]["id"]
    world.scheduler.sleep(4 * draw.random())
    redeem(world, draw, caller, lease_id)
    world.scheduler.sleep(4 * draw.random())
    end(world, caller, lease_id)


@operation(2)
def launch_at_once(world: World, draw: random.Random) -> None:
    """Launch small leases from many clients at the same moment, which may all choose the same GPU."""

    def one(number: int) -> None:
        cgpus = {"count": 1, "mode": "shared", "memory_mb": 512}
        caller = TENANTS[number % 2]
        own = random.Random(number)
        lease = {"cgpus": cgpus, "server": None, "consumer": {}}
        answer = launch(world, own, lease, caller)
        if answer.status in (201, 202):
            world.scheduler.sleep(20 * own.random())
            end(world, caller, answer.body["lease"]["id"])

    for number in [draw.getrandbits(32) for _ in range(draw.randrange(3, 7))]:
        world.scheduler.spawn(
            "launch_at_once",
            lambda number=number: one(number),  # type: ignore[misc]
            world.clients,
        )


@operation(2)
def launch_alike(world: World, draw: random.Random) -> None:
    """Launch several leases that ask for the same, more than there is room for, so that some wait for others."""
    caller, memory = draw.choice(TENANTS), draw.choice((2048, 8192, 8192))
    for _ in range(draw.randrange(4, 8)):
        lease = {
            "cgpus": {"count": 1, "mode": "shared", "memory_mb": memory},
            "server": None,
            "consumer": {"host": "compute2"},
            "wait": 300,
        }
        launch(world, draw, lease, caller)


@operation(3)
def launch_and_attend(world: World, draw: random.Random) -> None:
    """Wait in the queue with long polls, and stop at some time, as a client that is interrupted."""
    caller = draw.choice(TENANTS)
    lease = {
        "cgpus": _cgpus(draw),
        "server": None,
        "consumer": {"host": "compute1"},
        "wait": 300,
        "attended": True,
    }
    answer = launch(world, draw, lease, caller)
    if answer.status != 202:
        return
    path = f"/v1/leases/{answer.body['lease']['id']}"
    for _ in range(draw.randrange(6)):
        answer = clients.call(
            world, caller, "GET", f"{path}?while_status=QUEUED&timeout={draw.randrange(1, 30)}"
        )
        if answer.is_known and (answer.status != 200 or answer.body["lease"]["status"] != "QUEUED"):
            return


@operation(8, most=2)
def delete_lease(world: World, draw: random.Random) -> None:
    lease_id = _some(draw, world.leases)
    for caller in draw.sample(TENANTS, k=2):
        end(world, caller, lease_id, draw.choice(clients.versions()))


@operation(2)
def update_lease(world: World, draw: random.Random) -> None:
    change: dict[str, Any] = draw.choice(
        (
            {"name": "renamed"},
            {"priority": -draw.randrange(3)},
            {"duration": draw.randrange(10, 200)},
            {"ends_at": None},
            {"movable": "idle"},
            {"movable": "cut"},
        )
    )
    path = f"/v1/leases/{_some(draw, world.leases)}"
    clients.call(world, draw.choice(TENANTS), "PATCH", path, {"lease": change})


@operation(1)
def keep_lease(world: World, draw: random.Random) -> None:
    path = f"/v1/leases/{_some(draw, world.leases)}/keepalive"
    clients.call(world, draw.choice(TENANTS), "POST", path)


@operation(2)
def look_around(world: World, draw: random.Random) -> None:
    """Read something, in any microversion."""
    lease = _some(draw, world.leases)
    paths = (
        "/v1/leases",
        f"/v1/leases/{lease}",
        f"/v1/leases/{lease}/readings",
        "/v1/queue",
        "/v1/limits",
        "/v1/usage",
        "/v1/models",
        "/v1/policies",
        "/v1/policies/first-fit",
        "/v1/reservations",
        f"/v1/reservations/{_some(draw, world.reservations)}",
    )
    for path in draw.sample(paths, k=2):
        version = draw.choice(clients.versions())
        answer = clients.call(world, draw.choice((*TENANTS, "admin")), "GET", path, version=version)
        if path == "/v1/leases" and answer.status == 200:  # it has those of plain servers, too
            listed = [each["id"] for each in answer.body["leases"]]
            world.leases += [each for each in listed if each not in world.leases]


@operation(1)
def look_at_machines(world: World, draw: random.Random) -> None:
    paths = (
        "/v1/gpus",
        "/v1/gpus/GPU-gpu1-0",
        "/v1/hosts",
        "/v1/hosts/gpu1",
        "/v1/endpoints",
        "/v1/endpoints/compute1",
        "/v1/settings",
        "/v1/leases?all_projects=true",
        "/",
        "/v1",
        "/v1/openapi.json",
        "/healthcheck",
        "/metrics",
    )
    for path in draw.sample(paths, k=4):
        clients.call(world, "admin", "GET", path, version=draw.choice(clients.versions()))


@operation(1)
def check(world: World, draw: random.Random) -> None:
    clients.call(world, draw.choice(TENANTS), "POST", "/v1/checks", {"check": _cgpus(draw)})


@operation(2)
def redeem_grant(world: World, draw: random.Random) -> None:
    """Fetch the environment of a lease, and show its grant, once or twice."""
    redeem(world, draw, draw.choice(TENANTS), _some(draw, world.leases))


def redeem(world: World, draw: random.Random, caller: str, lease_id: str) -> None:
    """Show the grant of a lease, if it has one, once or twice."""
    answer = clients.call(world, caller, "GET", f"/v1/leases/{lease_id}/environment")
    grant = answer.body["environment"].get("GSAAS_GRANT") if answer.status == 200 else None
    if grant is None:
        return
    world.grants.add(grant)
    body = {
        "grant": {
            "key": grant,
            "address": draw.choice(("10.9.9.9", "10.9.9.10")),
            "lease_id": lease_id,
        }
    }
    for _ in range(draw.randrange(1, 3)):
        clients.call(world, "service", "POST", "/v1/grants/redeem", body)


@operation(2)
def reserve(world: World, draw: random.Random) -> None:
    now = facade.true_time()
    cgpus = {
        name: value for name, value in _cgpus(draw).items() if name not in ("locality", "policy")
    }
    start = now + datetime.timedelta(seconds=draw.choice((0, 60, 200)))
    wanted: dict[str, Any] = {
        "cgpus": cgpus,
        "end": f"{start + datetime.timedelta(seconds=draw.choice((90, 400))):%Y-%m-%dT%H:%M:%SZ}",
    }
    if start != now:
        wanted["start"] = f"{start:%Y-%m-%dT%H:%M:%SZ}"
    caller = draw.choice(TENANTS)
    answer = clients.call(world, caller, "POST", "/v1/reservations", {"reservation": wanted})
    if answer.status != 201:
        return
    reservation_id = answer.body["reservation"]["id"]
    world.reservations.append(reservation_id)
    if draw.random() < 0.7:
        world.scheduler.sleep(draw.random() * 100)
        lease = {
            "cgpus": {"count": cgpus["count"]},
            "server": None,
            "consumer": {"host": "compute1"},
            "reservation": reservation_id,
        }
        launch(world, draw, lease, caller)


@operation(1)
def rename_reservation(world: World, draw: random.Random) -> None:
    path = f"/v1/reservations/{_some(draw, world.reservations)}"
    body = {"reservation": {"name": f"renamed-{draw.randrange(10)}"}}
    clients.call(world, draw.choice(TENANTS), "PATCH", path, body)


@operation(1)
def cancel_reservation(world: World, draw: random.Random) -> None:
    path = f"/v1/reservations/{_some(draw, world.reservations)}"
    clients.call(world, draw.choice(TENANTS), "DELETE", path)


@operation(2)
def disable(world: World, draw: random.Random) -> None:
    """Disable a GPU or a host, and enable it a little later."""
    noun, path = draw.choice(
        (("gpu", "/v1/gpus/GPU-gpu1-0"), ("gpu", "/v1/gpus/GPU-gpu2-1"), ("host", "/v1/hosts/gpu2"))
    )
    body = {noun: {"disabled": True, "disabled_reason": "maintenance"}}
    clients.call(world, "admin", "PATCH", path, body)
    world.scheduler.sleep(60 * draw.random())
    clients.call(world, "admin", "PATCH", path, {noun: {"disabled": False}}, loses_answers=False)


@operation(2)
def drain_host(world: World, draw: random.Random) -> None:
    """Have the leases of a GPU host move away, and enable the host a little later, mostly."""
    path = f"/v1/hosts/{draw.choice(('gpu1', 'gpu2'))}"
    by = facade.true_time() + datetime.timedelta(seconds=40 * draw.random())
    how: dict[str, Any] = draw.choice(({}, {"force": True}, {"by": f"{by:%Y-%m-%dT%H:%M:%SZ}"}))
    drain = {"disabled": True, "disabled_reason": "update", "drain": how}
    clients.call(world, "admin", "PATCH", path, {"host": drain})
    world.scheduler.sleep(90 * draw.random())
    if draw.random() < 0.2:
        return  # it stays so, unless another one enables it
    clients.call(world, "admin", "PATCH", path, {"host": {"disabled": False}}, loses_answers=False)


@operation(3)
def move_cgpus(world: World, draw: random.Random) -> None:
    """Have an operator move cGPUs of a lease to other GPUs, or ask what that would do."""
    move: dict[str, Any] = draw.choice(
        ({}, {"index": 0}, {"host": "gpu1"}, {"host": "gpu2"}, {"index": 0, "gpu": "GPU-gpu2-1"})
    )
    move |= {"force": draw.random() < 0.5, "dry_run": draw.random() < 0.1}
    chosen = _some(draw, world.leases)
    if draw.random() < 0.9:
        listed = "/v1/leases?all_projects=true&status=ACTIVE"
        answer = clients.call(world, "admin", "GET", listed)
        if answer.status != 200 or not answer.body["leases"]:
            return
        chosen = draw.choice(answer.body["leases"])["id"]
    path = f"/v1/leases/{chosen}/move"
    if clients.call(world, "admin", "POST", path, {"move": move}).status == 202:
        world.counted["move that was accepted"] += 1


@operation(0.5)
def forget_host(world: World, draw: random.Random) -> None:
    """Forget a host that was switched off, as the operator promises with it; it returns later."""
    host = draw.choice(("gpu1", "gpu2", "compute1", "compute2"))
    world.switch_off(host)
    force = "?force=true" if draw.random() < 0.6 else ""
    clients.call(world, "admin", "DELETE", f"/v1/hosts/{host}{force}")
    world.switched_off.discard(host)


@operation(0.5)
def adopt_gpu(world: World, draw: random.Random) -> None:
    path = "/v1/gpus/GPU-gpu1-1/adopt"
    clients.call(world, "admin", "POST", path, {"adopt": {"host": draw.choice(("gpu1", "gpu2"))}})


@operation(0.5)
def change_policy(world: World, draw: random.Random) -> None:
    wanted = draw.choice((None, "first-fit", "worst-fit"))
    clients.call(world, "admin", "PATCH", "/v1/policies", {"policies": {"default": wanted}})


@operation(0.5)
def change_settings(world: World, draw: random.Random) -> None:
    wanted = {"settings": {"monitor_interval": draw.choice((None, 5, 30))}}
    clients.call(world, "admin", "PATCH", "/v1/settings", wanted)


@operation(1)
def change_quota(world: World, draw: random.Random) -> None:
    """Lower the quota of all projects, and raise it again a little later."""
    world.change_quota(draw.choice((1, 2, 3)))
    world.scheduler.sleep(60 * draw.random())
    world.change_quota(world.quota)


@operation(1)
def purge(world: World, draw: random.Random) -> None:
    """Delete leases that were released a little ago, as a timer of the operator does."""
    world.keep_events()
    try:
        processes.purge(world, 10 + 60 * draw.random())
    except (db_exception.DBError, OSError) as error:
        world.story.tell(f"cannot purge: {type(error).__name__}", "operator")
    stored = {row["id"] for row in world.reader.rows("SELECT id FROM leases")}
    world.history.purged = world.reader.stored().leases.keys() - stored


@operation(2)
def make_plain_server(world: World, draw: random.Random) -> None:
    """Boot a server with Nova, whose flavor asks for cGPUs; Nova may ask for its vendor data."""
    specs = {"gsaas:ncgpus": "1", "gsaas:poolmem": "2048", "gsaas:mode": "shared"}
    host = draw.choice(world.compute_hosts)
    made = world.nova.boot(None, draw.choice(("blue", "red")), "", host, specs)
    world.story.tell(f"boots plain server {made.server.id}", "nova")
    if draw.random() < 0.6:
        body = {"instance-id": made.server.id, "project-id": made.project_id}
        clients.call(world, "service", "POST", "/v1/vendordata", body)


@operation(1)
def delete_plain_server(world: World, draw: random.Random) -> None:
    plain = [key for key, each in world.nova.servers.items() if each.tag is None]
    if plain:
        chosen = draw.choice(plain)
        world.story.tell(f"deletes plain server {chosen}", "nova")
        world.nova.remove(chosen)
