# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, and what others do behind the control plane's back. Most of it ends after a while."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gsaas.cloud.base import ServerStatus
from gsaas.objects.gpu_report import Reading
from gsaas.rodvr.plan import DatapathState
from tests.world.cloud import Instance
from tests.world.table import happens

if TYPE_CHECKING:
    from tests.world.world import World

LONGEST = 30.0
"""Seconds for which a fault lasts at most."""


def _for_a_while(
    world: World, draw: random.Random, of: Any, longest: float = LONGEST, **changes: Any
) -> None:
    """Set attributes, and after a while to what they are when nothing is wrong: false, zero, empty."""
    for name, value in changes.items():
        setattr(of, name, value)
    seconds = longest * draw.random()
    named = ", ".join(f"{name} is {value}" for name, value in changes.items())
    where = getattr(of, "host", "")
    world.story.tell(f"{type(of).__name__} {where}: {named} for {seconds:.1f} s", "fault")

    def end() -> None:
        world.scheduler.sleep(seconds)
        for name, value in changes.items():
            setattr(of, name, None if isinstance(value, Reading) else type(value)())
        world.bus.deliver()

    world.scheduler.spawn("fault", end, world.scheduler.driver.process)


@happens(5)
def kill_a_process(world: World, draw: random.Random) -> None:
    world.kill(draw.choice(sorted(world.commands)))


@happens(6)
def kill_a_process_soon(world: World, draw: random.Random) -> None:
    """Kill a process at one of its next points: between any two of its effects."""
    process = world.processes[draw.choice(sorted(world.commands))]
    process.fuse = draw.randrange(1, 120)


EFFECTS = {
    "api": ("commit", "message"),
    "engine": ("commit", "message", "server", "server", "server"),
    "monitor": ("kernel", "daemon"),
    "rodvr": ("kernel",),
}
"""What each kind of process changes outside itself."""


@happens(8)
def kill_a_process_after_an_effect(world: World, draw: random.Random) -> None:
    """Kill a process, an engine mostly, when it has changed something, before it can note or answer that."""
    names = (*sorted(world.commands), *("engine1", "engine2") * 3)
    process = world.processes[draw.choice(names)]
    process.dies_after = draw.choice(EFFECTS[process.name.rstrip("12").partition("-")[0]])
    process.survives = draw.choice((0, 0, 0, 1, 3))


@happens(2)
def stand_still(world: World, draw: random.Random) -> None:
    process = world.processes[draw.choice(sorted(world.commands))]
    process.stands_still_until = world.scheduler.now + LONGEST * draw.random()
    world.story.tell(f"stands still until {process.stands_still_until:.1f}", process.name)


@happens(1)
def clock_is_wrong(world: World, draw: random.Random) -> None:
    process = world.processes[draw.choice(sorted(world.commands))]
    process.skew = draw.uniform(-300, 300)
    world.story.tell(f"has a clock that is wrong by {process.skew:.1f} s", process.name)


@happens(4)
def messages_are_lost(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world.bus.weather, lost=draw.choice((0.1, 0.3, 0.7)))


@happens(5)
def messages_are_doubled(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world.bus.weather, doubled=draw.choice((0.2, 0.5, 0.9)))


@happens(3)
def messages_are_late(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world.bus.weather, late=draw.choice((0.2, 0.5)))


@happens(3)
def orders_are_repeated(world: World, draw: random.Random) -> None:
    """Monitors get orders once more, after newer ones."""
    _for_a_while(world, draw, world.bus.weather, repeats_orders=0.7)


@happens(1)
def broker_is_away(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world.bus.weather, is_away=True)


@happens(2)
def races_are_lost(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world.database.weather, deadlock=0.1, refused=0.2)


@happens(4)
def commits_are_unknown(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world.database.weather, unknown=draw.choice((0.2, 0.6)))


@happens(2)
def connections_are_lost(world: World, draw: random.Random) -> None:
    """The database, or a proxy before it, closes connections in the midst of transactions."""
    _for_a_while(world, draw, world.database.weather, lost_connection=draw.choice((0.02, 0.1)))


@happens(1)
def database_is_away(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world.database.weather, is_away=True)


@happens(2)
def nova_loses_requests(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world.nova.weather, lost_request=0.3, lost_answer=0.3)


@happens(1)
def nova_is_slow(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world.nova.weather, slow=0.5)


@happens(1)
def nova_is_away(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world.nova.weather, is_away=True)


@happens(3)
def nova_refuses(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world.nova.weather, refuses=0.5, fails=0.5)


@happens(2)
def answers_are_lost(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world, lost_answers=0.5)


def _on_a_server(
    act: Callable[[World, random.Random, Instance], str],
) -> Callable[[World, random.Random], None]:
    def on_one(world: World, draw: random.Random) -> None:
        running = [
            each
            for each in world.nova.servers.values()
            if each.server.status == ServerStatus.ACTIVE
        ]
        if running:
            chosen = draw.choice(running)
            what = act(world, draw, chosen)
            world.story.tell(f"{what} server {chosen.server.id}", "nova")

    on_one.__name__ = act.__name__
    return on_one


@happens(2)
@_on_a_server
def server_is_deleted(world: World, draw: random.Random, made: Instance) -> str:
    world.nova.remove(made.server.id)
    return "deletes, for its owner,"


@happens(2)
@_on_a_server
def server_is_rebuilt(world: World, draw: random.Random, made: Instance) -> str:
    world.nova.rebuild(made)
    return "rebuilds"


@happens(2)
@_on_a_server
def server_is_moved(world: World, draw: random.Random, made: Instance) -> str:
    other = next(host for host in world.compute_hosts if host != made.server.host)
    world.nova.move(made, other)
    return f"moves to {other}"


@happens(1)
@_on_a_server
def server_is_resized(world: World, draw: random.Random, made: Instance) -> str:
    """Resize a server, which goes to another host, where it boots."""
    other = next(host for host in world.compute_hosts if host != made.server.host)
    world.nova.resize(made, other)
    return f"resizes on {other}"


@happens(1)
@_on_a_server
def server_is_shelved(world: World, draw: random.Random, made: Instance) -> str:
    world.nova.shelve(made)
    return "shelves"


@happens(2)
@_on_a_server
def server_fails(world: World, draw: random.Random, made: Instance) -> str:
    world.nova.change(made, status=ServerStatus.ERROR, fault="the hypervisor has failed")
    return "fails"


@happens(2)
def tables_are_flushed(world: World, draw: random.Random) -> None:
    """Somebody empties RODVR's tables, or the fence, as `nft flush ruleset` does."""
    host = draw.choice(sorted(world.kernels))
    kernel = world.kernels[host]
    if kernel.tables is not None:
        kernel.tables = None if draw.random() < 0.5 else DatapathState()
    if kernel.admitted is not None:
        kernel.admitted = None
    world.story.tell(f"the tables of {host} are flushed", "fault")


@happens(1)
def kernel_refuses(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world.kernels[draw.choice(sorted(world.kernels))], refuses=True)


@happens(1)
def link_goes_and_returns(world: World, draw: random.Random) -> None:
    kernel = world.kernels[draw.choice(world.compute_hosts)]
    taps = [name for name in kernel.links if name.startswith("tap")]
    if taps:
        tap = draw.choice(taps)
        kernel.remove_link(tap)
        kernel.add_link(tap)
        world.story.tell(f"{tap} of {kernel.host} goes and returns", "fault")


@happens(4)
def programs_connect(world: World, draw: random.Random) -> None:
    """VMs and programs of a compute host have connections open to their GPUs for a while."""
    kernel = world.kernels[draw.choice(world.compute_hosts)]
    opened = [kernel.connect(draw) for _ in range(2)]
    seconds = 2 * LONGEST * draw.random()

    def close() -> None:
        world.scheduler.sleep(seconds)
        for each in opened:
            if each is not None:
                kernel.disconnect(each)

    world.scheduler.spawn("programs", close, world.scheduler.driver.process)


@happens(2)
def daemon_dies(world: World, draw: random.Random) -> None:
    systemd = world.gpu_hosts[draw.choice(sorted(world.gpu_hosts))].systemd
    living = [each for each in systemd.units.values() if each.has_processes]
    if living:
        died = draw.choice(living)
        systemd.end(died, "failed")
        world.story.tell(f"daemon {died.daemon.key} dies", "fault")


@happens(1)
def daemons_do_not_start(world: World, draw: random.Random) -> None:
    systemd = world.gpu_hosts[draw.choice(sorted(world.gpu_hosts))].systemd
    systemd.fails_next = True
    world.story.tell("the next daemon does not start", "fault")


@happens(1)
def daemons_ignore_stop(world: World, draw: random.Random) -> None:
    systemd = world.gpu_hosts[draw.choice(sorted(world.gpu_hosts))].systemd
    _for_a_while(world, draw, systemd, ignores_stop=True)


@happens(1)
def systemd_is_away(world: World, draw: random.Random) -> None:
    systemd = world.gpu_hosts[draw.choice(sorted(world.gpu_hosts))].systemd
    _for_a_while(world, draw, systemd, is_away=True)


@happens(2)
def gpu_fails(world: World, draw: random.Random) -> None:
    """A GPU is withdrawn, or missing, or its driver does not answer, and it returns."""
    gpus = world.gpu_hosts[draw.choice(sorted(world.gpu_hosts))].gpus
    uuid = draw.choice(sorted(gpus.gpus))
    what = draw.choice(("withdrawn", "missing", "driver"))
    if what == "driver":
        _for_a_while(world, draw, gpus, fails=True)
    elif what == "withdrawn":
        _for_a_while(world, draw, gpus, 90, withdrawn={uuid: "it has fallen off the bus"})
    else:
        _for_a_while(world, draw, gpus, 90, missing={uuid})
    gpus.changed()


@happens(1.5)
def gpu_host_is_silent(world: World, draw: random.Random) -> None:
    """A GPU host has no power for minutes, and nobody says so: its GPUs are lost."""
    host = draw.choice(sorted(world.gpu_hosts))
    seconds = draw.uniform(90, 240)
    world.switch_off(host)

    def end() -> None:
        world.scheduler.sleep(seconds)
        world.switched_off.discard(host)

    world.scheduler.spawn("fault", end, world.scheduler.driver.process)


BUSY = Reading(used_mb=500, utilisation=60.0, temperature_c=60.0, power_w=100.0)


@happens(2)
def gpus_are_busy(world: World, draw: random.Random) -> None:
    _for_a_while(world, draw, world.gpu_hosts[draw.choice(sorted(world.gpu_hosts))].gpus, odd=BUSY)


@happens(0.5)
def owner_returns(world: World, draw: random.Random) -> None:
    """The next owner who is warned of an idle lease uses it again."""

    def attend() -> None:
        while not world.is_calm:
            warned = world.reader.rows(
                "SELECT g.host_name AS host FROM leases l JOIN claims c ON c.lease_id = l.id"
                " JOIN gpus g ON g.uuid = c.gpu_uuid WHERE l.reclaim_at IS NOT NULL ORDER BY l.id, g.uuid"
            )
            if warned:
                gpus = world.gpu_hosts[draw.choice(warned)["host"]].gpus
                world.story.tell("an owner who was warned returns", "client")
                gpus.odd = BUSY
                world.scheduler.sleep(50)
                gpus.odd = None
                return
            world.scheduler.sleep(10)

    world.scheduler.spawn("owner", attend, world.scheduler.driver.process)


@happens(1)
def gpus_are_odd(world: World, draw: random.Random) -> None:
    gpus = world.gpu_hosts[draw.choice(sorted(world.gpu_hosts))].gpus
    odd = Reading(
        used_mb=draw.choice((-5, 0, 10**12)),
        utilisation=draw.choice((float("nan"), -1.0, 5e9)),
        temperature_c=float("inf"),
        power_w=None,
    )
    _for_a_while(world, draw, gpus, odd=odd)
