# SPDX-License-Identifier: Apache-2.0
"""One world: its machines, its processes, its clients, and the seed that decides all that happens in it.

A seed draws a plan: what is done, when, each with a number of its own. Then the plan is carried out: the tasks of all
processes go on as the seed draws. At the end faults stop; everything has to come to rest, and then to be cleaned up.
"""

from __future__ import annotations

import functools
import gc
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flask
from oslo_db import exception as db_exception

from gsaas import rpc
from gsaas.api.routes import ROUTES
from gsaas.cloud.base import ServerStatus
from gsaas.gpu_host.daemons.unavailable import SystemdUnavailable
from gsaas.objects.gpu_report import GpuInfo
from gsaas.objects.lifecycle import Status
from tests.api import world as api_world
from tests.world import (
    baton,
    bus,
    clients,
    cloud,
    database,
    facade,
    history,
    kernel,
    processes,
    rules,
    snapshot,
)
from tests.world.baton import Killed, Process, Scheduler, Stuck, Task
from tests.world.machines import MemoryGpus, Systemd
from tests.world.story import Log, Story

HAPPENINGS = 120
"""What is drawn for one seed."""
GAP = 2.0
"""Seconds between two of them, on average."""
REST = 1800.0
"""Seconds within which everything comes to rest when faults stop."""
MOST_POINTS = 1_500_000
PROJECTS = {"member": "blue", "stranger": "red"}
"""Tenant -> its project."""
RESTART = 5.0
"""Seconds after which systemd starts a process again."""
SECRETS = ("token-of-the-", "AAECAwQF", "secret-of-controllers")
"""How the tokens of callers, the key for grants, and the secret of the bus begin."""
PAUSE = 500.0
"""Seconds of the pause in which leases become idle."""
VERIFICATIONS = 20
"""How often `gsaas-manage verify` looks until there is no difference."""
QUOTA_TAKES = 120.0
"""Seconds after which no request goes on that began under a former quota."""
UNLIMITED = 10**6
"""A quota that nobody reaches: a project has none."""
OPTIONS = (
    ("engine", "idle_action", ("none", "release", "shelve")),
    ("engine", "on_gpu_loss", ("wait", "remake")),
    ("queue", "backfill", (False, True)),
)
"""Group and name of options, and their values, of which each world has one."""

FOLDER = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # noqa: S108 - a database that nobody keeps


@dataclass(frozen=True)
class Happening:
    """What is done at one moment."""

    at: float
    name: str
    number: int
    """From which its details are drawn."""


@dataclass
class GpuHost:
    address: str
    gpus: MemoryGpus
    systemd: Systemd


@dataclass
class Outcome:
    """What became of a seed."""

    seed: int
    broken: list[str]
    """The rules that were broken, a sentence each."""
    story: list[str]
    digest: str
    points: int
    counted: Counter[str] = field(default_factory=Counter)
    """Operations, faults and edges, and how often each was taken."""
    reached: int = 0
    """How many happenings of the plan came before it broke a rule, or ended."""


class World:
    """Two APIs, two engines, two GPU hosts and two compute hosts."""

    GPUS = 2
    MEMORY = 8192

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.life = self.chance.choice(("per-gpu", "per-lease"))
        self.scheduler = Scheduler(
            self.chance, self.chance.choice((0.1, 0.3, 0.6, 1.0)), MOST_POINTS
        )
        baton.scheduler = self.scheduler
        self.story = Story()
        self.mistakes: list[str] = []
        """What the processes log of errors that are never expected."""
        self.logged: list[str] = []
        """All that the processes log."""
        self._until_end = ExitStack()
        log = Log(self.story, self.mistakes.append, self.logged.append)
        self._until_end.enter_context(log.listening())
        self.broken: list[str] = []
        self.counted: Counter[str] = Counter()
        self.conf = processes.configuration(self.life)
        for group, option, values in OPTIONS:
            self._configure(group, option, self.chance.choice(values))
        self.quota = self.chance.choice((processes.QUOTA, processes.QUOTA, UNLIMITED))
        """The most cGPUs that a project may have, as long as nobody lowers it."""
        self._configure("quotas", "cgpus", _limit(self.quota))
        self.kernels = {
            name: kernel.HostKernel(name, address)
            for name, address in (
                ("gpu1", "192.168.50.11"),
                ("gpu2", "192.168.50.12"),
                ("compute1", "192.168.50.21"),
                ("compute2", "192.168.50.22"),
            )
        }
        self.compute_hosts = ("compute1", "compute2")
        self.gpu_hosts = {name: self._gpu_host(name) for name in ("gpu1", "gpu2")}
        self.database = database.Server(
            folder / "world.db", self.story.tell, locks_late=self.chance.random() < 0.5
        )
        self.nova = cloud.Nova(self.kernels, self.story.tell)
        self.bus = bus.Bus(self.conf, self.story.tell)
        self.bus.on_carried = self._look_into
        if self.chance.random() < 0.5:
            self.bus.secret = SECRETS[-1]
        self.reader = snapshot.Reader(folder / "world.db")
        self.history = history.History(len(self.gpu_hosts) * self.GPUS * self.MEMORY, self.quota)
        self.database.on_commit = self._note_books
        self.processes: dict[str, Process] = {}
        """Those that run, by name."""
        self.clients = Process("client")
        self.apis: dict[str, flask.Flask] = {}
        self.answers: dict[str, list[str]] = {}
        """Idempotency key -> the leases that launches with it returned."""
        self.leases: list[str] = []
        """The ids that clients have seen."""
        self.ended: set[str] = set()
        """The ids whose end was answered."""
        self.reservations: list[str] = []
        self.grants: set[str] = set()
        """Those that leases have."""
        self.notifies = self.chance.random() < 0.25
        """Notifications are sent."""
        self.notified: list[tuple[str, Any]] = []
        """Type and payload of each notification."""
        self.quotas = [(0.0, self.quota)]
        """Since when which quota holds."""
        self.events: dict[tuple[int, str], snapshot.Row] = {}
        """The events of leases, also of those that were purged."""
        self.reached = 0
        """How many happenings of the plan have been carried out, or left out."""
        self.pending: list[Any] = []
        """Requests that clients wait for: `tests.world.clients.Request`."""
        self.forgotten: set[str] = set()
        """Hosts that an operator once asked to forget."""
        self.switched_off: set[str] = set()
        """Hosts without power, on which no process starts."""
        self.is_calm = False
        """Faults have stopped."""
        self.lost_answers = 0.0
        """How likely a client loses an answer, 0 to 1."""
        self._lives: Counter[str] = Counter()
        self._used: Counter[str] = Counter()
        """Project -> its cGPUs at the last look."""
        self.asked_at: dict[str, float] = {}
        """Name of a lease -> when its first launch was sent, in seconds since the world began."""
        self.known_since: dict[str, float] = {}
        """Lease -> when its launch was answered, or it was first seen in the queue."""
        self._before = self.reader.stored()
        """What was stored at the last look."""
        self._looked_at = 0.0
        self._seen: object = None
        """What there was at the last look."""
        database.use(self.database)
        bus.use(self.bus)
        kernel.use(self.kernels.__getitem__)
        self.scheduler.on_killed = self._killed
        self.scheduler.on_ended = self.database.forget
        self.scheduler.on_crash = self._crashed
        self.scheduler.on_effect = self._look_after

    def _gpu_host(self, name: str) -> GpuHost:
        infos = [
            GpuInfo(f"GPU-{name}-{number}", number, "Quadro M4000", self.MEMORY, 8308 + number)
            for number in range(self.GPUS)
        ]
        return GpuHost(self.kernels[name].address, MemoryGpus(infos), Systemd(name))

    # -- processes --------------------------------------------------------------------------------------

    @property
    def commands(self) -> dict[str, Callable[[], object]]:
        """How each process is started."""
        found: dict[str, Callable[[], object]] = {}
        for name in ("api1", "api2"):
            found[name] = lambda name=name: self._start_api(name)  # type: ignore[misc]
        for name in ("engine1", "engine2"):
            found[name] = lambda: processes.engine(self)
        for host in self.gpu_hosts:
            found[f"monitor-{host}"] = lambda host=host: processes.monitor(self, host)  # type: ignore[misc]
        for host in self.compute_hosts:
            found[f"rodvr-{host}"] = lambda host=host: processes.endpoint(self, host)  # type: ignore[misc]
        return found

    def _start_api(self, name: str) -> None:
        self.apis[name] = processes.api(self)

    def start(self, name: str) -> None:
        """Start a process that does not run."""
        self._lives[name] += 1
        process = Process(name, life=self._lives[name])
        self.processes[name] = process
        self.story.tell("starts", name)
        self.scheduler.spawn(f"{name}: main", lambda: self._main(name, process), process)

    def _main(self, name: str, process: Process) -> None:
        try:
            self.commands[name]()
        except Killed:
            raise
        except (
            db_exception.DBError,
            db_exception.DBConnectionError,
            rpc.BusError,
            OSError,
            SystemdUnavailable,
        ) as error:
            self.story.tell(f"cannot start: {type(error).__name__}: {error}")
            self.scheduler.kill(process)
            raise Killed from error

    def kill(self, name: str) -> None:
        """Kill a process now."""
        process = self.processes.get(name)
        if process is not None and process.is_alive:
            self.scheduler.kill(process)

    def _killed(self, process: Process) -> None:
        self.story.tell("is killed", process.name)
        self.bus.forget(process)
        self.apis.pop(process.name, None)
        for host, each in self.gpu_hosts.items():
            if process.name == f"monitor-{host}":
                each.systemd.watchers.clear()
        for each_kernel in self.kernels.values():
            if process.name == f"rodvr-{each_kernel.host}":
                each_kernel.watches.clear()
        for request in list(self.pending):
            if request.process is process:
                request.lose()
        name = process.name
        self.scheduler.spawn(
            "systemd", lambda: self._start_again(name), self.scheduler.driver.process
        )

    def _start_again(self, name: str) -> None:
        self.scheduler.sleep(RESTART * (1 + self.chance.random()))
        while name.partition("-")[2] in self.switched_off:
            self.scheduler.sleep(RESTART)
        self.start(name)

    def switch_off(self, host: str) -> None:
        """Have a host lose its power: all that its kernel and its systemd have is gone."""
        self.story.tell(f"{host} is switched off", "fault")
        self.switched_off.add(host)
        if host in self.gpu_hosts:
            systemd = self.gpu_hosts[host].systemd
            for each in systemd.units.values():
                systemd.end(each)
            systemd.units.clear()
        self.kill(f"monitor-{host}")
        self.kill(f"rodvr-{host}")
        lost = self.kernels[host]
        lost.tables = lost.admitted = None
        lost.connections, lost.local_connections = {}, set()

    def _crashed(self, task: Task, error: BaseException) -> None:
        self.broken.append(f"crash: {task.name}: {type(error).__name__}: {error}")
        self.story.tell(f"BROKEN {self.broken[-1]}", task.process.name)

    # -- looking ----------------------------------------------------------------------------------------

    def outside(self) -> snapshot.Outside:
        """Return what is there outside the database."""
        mappings = [
            (host, port_id, real)
            for host, each in sorted(self.kernels.items())
            for port_id, real in each.mapped()
        ]
        local_mappings = [
            (host, masked, real)
            for host, each in sorted(self.kernels.items())
            for masked, real in each.mapped_locally()
        ]
        admissions = [
            (host, each)
            for host in self.gpu_hosts
            for each in sorted(
                self.kernels[host].admitted.admitted if self.kernels[host].admitted else ()
            )
        ]
        daemons = [
            (host, each.daemon.lease_id, each.daemon.port)
            for host, machine in self.gpu_hosts.items()
            for each in machine.systemd.units.values()
            if each.has_processes and each.daemon.lease_id is not None
        ]
        servers = [
            (key, each.tag)
            for key, each in self.nova.servers.items()
            if each.server.status != ServerStatus.SHELVED  # it is left to its owner
        ]
        return snapshot.Outside(
            servers=tuple(servers),
            mappings=tuple(mappings),
            local_mappings=tuple(local_mappings),
            connections=tuple(
                (host, port_id, each.real)
                for host, where in sorted(self.kernels.items())
                for each, port_id in where.connections.items()
            ),
            local_connections=tuple(
                (host, *each)
                for host, where in sorted(self.kernels.items())
                for each in sorted(where.local_connections, key=str)
            ),
            admissions=tuple(admissions),
            daemons=tuple(daemons),
            host_addresses=frozenset(each.address for each in self.kernels.values()),
        )

    def _look_after(self, effect: str) -> None:
        if effect == "message" or (effect == "commit" and not self.reader.has_other_claims()):
            return
        self.look()

    def look(self) -> None:
        """Note what is broken now."""
        stored, outside = self.reader.stored(), self.outside()
        seen = stored, outside, len(self.leases), len(self.ended), len(self.mistakes)
        if seen == self._seen:
            return
        self._seen = seen
        self._note(
            [
                *rules.after_each_step(stored, outside, self.forgotten),
                *self._served_past_others(stored),
                *self._over_quota(stored),
                *rules.answers_are_true(stored, self.leases, self.ended),
                *self.mistakes,
            ]
        )

    def _note_books(self) -> None:
        gpus, waiting = self.reader.free(self.conf.gpgpums.heartbeat_timeout)
        self.history.note(self.scheduler.points, gpus, waiting)

    def _served_past_others(self, stored: snapshot.Stored) -> list[str]:
        """Nobody is served past those that have waited since before it was asked for."""
        before, self._before = self._before, stored
        if before is stored:
            return []
        for key, row in before.leases.items():
            if row["status"] == Status.QUEUED:
                self.known_since.setdefault(key, self._looked_at)
        self._looked_at = self.scheduler.now
        waiting = [key for key in stored.leases if key in self.known_since]
        return list(
            rules.served_past_others(
                before,
                stored,
                {key: self.known_since[key] for key in waiting},
                self.asked_at,
                f"{facade.true_time():%Y-%m-%d %H:%M:%S.%f}",
                min(self._recent_quotas()),
            )
        )

    def _over_quota(self, stored: snapshot.Stored) -> list[str]:
        """No project has more than its quota, unless that was larger when it got it."""
        used, self._used = rules.used(stored), self._used
        return rules.over_quota(used, self._used, max(self._recent_quotas()))

    def _recent_quotas(self) -> list[int]:
        """Return the quotas by which a request may be judged that goes on now."""
        since = self.scheduler.now - QUOTA_TAKES
        newer = [quota for at, quota in self.quotas if at >= since]
        return [quota for at, quota in self.quotas if at < since][-1:] + newer

    def change_quota(self, quota: int) -> None:
        self.story.tell(f"projects may have {quota} cGPUs", "operator")
        self._configure("quotas", "cgpus", _limit(quota))
        self.quotas.append((self.scheduler.now, quota))

    def _look_into(self, message: str) -> None:
        self._note(rules.secrets_are_kept([message], SECRETS))

    def note_answer(
        self, caller: str, method: str, path: str, body: Any, answer: clients.Answer
    ) -> None:
        """Count and judge an answer to a request."""
        self.counted[f"route {_route(method, path.partition('?')[0])}"] += 1
        asked, text = f"{method} {path} {json.dumps(body)}", json.dumps(answer.body)
        self._note(rules.secrets_are_kept([text], SECRETS))
        if caller in PROJECTS:
            owners = {key: row["project_id"] for key, row in self.reader.stored().leases.items()}
            self._note(
                rules.answers_are_private(PROJECTS[caller], owners, asked, answer.status, text)
            )

    def _note(self, found: Collection[str]) -> None:
        for sentence in found:
            if sentence not in self.broken:
                self.broken.append(sentence)
                self.story.tell(f"BROKEN {sentence}", "rules")

    # -- a seed -----------------------------------------------------------------------------------------

    def plan(self) -> list[Happening]:
        """Draw what is done in this world."""
        from tests.world import happenings

        names = list(happenings.ALL)
        weights = [happenings.ALL[name].weight for name in names]
        at, drawn = 30.0, []
        pause = HAPPENINGS
        if self.conf.engine.idle_action != "none" and self.chance.random() < 0.3:
            pause = self.chance.randrange(HAPPENINGS)
        for place, name in enumerate(self.chance.choices(names, weights, k=HAPPENINGS)):
            at += self.chance.expovariate(1 / GAP)
            if place == pause:
                if self.chance.random() < 0.5:
                    drawn.append(Happening(at, "owner_returns", self.chance.getrandbits(32)))
                at += PAUSE
            drawn.append(Happening(at, name, self.chance.getrandbits(32)))
        return drawn

    def run(self, kept: Collection[int] | None = None) -> None:
        """Carry out the plan; with *kept*, only those of its happenings, by their positions."""
        from tests.world import happenings

        plan = self.plan()
        for name in self.commands:
            self.start(name)
        for position, happening in enumerate(plan):
            if kept is not None and position not in kept:
                continue
            self.reached = position + 1
            self.sleep_until(happening.at)
            self.counted[happening.name] += 1
            happenings.ALL[happening.name].act(self, random.Random(happening.number))
            self.look()
            if self.broken:
                return
        self.settle()

    def sleep_until(self, moment: float) -> None:
        """Let the world go on until then, and look at it now and then."""
        while self.scheduler.now < moment:
            self.scheduler.wait(until=min(moment, self.scheduler.now + 10.0))
            self.look()

    def settle(self) -> None:
        """Stop all faults, let everything come to rest, end every lease, and look what is left."""
        from tests.world import happenings

        self.story.tell("all faults stop")
        self.is_calm = True
        happenings.calm(self)
        if not self._comes_to_rest(
            lambda: set(rules.all_is_at_rest(self.reader.stored(), self.outside()))
        ):
            return
        self._judge_history()
        self._verify()
        if self.broken:
            return
        while any(task.process is self.clients for task in self.scheduler.tasks):
            self.sleep_until(self.scheduler.now + 15.0)  # some may launch yet, once more
        self.story.tell("every lease is ended")
        happenings.end_all(self)
        self._comes_to_rest(
            lambda: set(rules.nothing_is_left(self.reader.stored(), self.outside()))
        )
        self._judge_history()
        self._note(self.history.judge())
        self.counted.update(self.history.counted)
        self._verify()

    def _verify(self) -> None:
        """Have `gsaas-manage verify` look until it finds no difference."""
        for _ in range(VERIFICATIONS):
            found: list[str] = []
            task = self.scheduler.spawn(
                "verify",
                lambda found=found: found.extend(processes.verify(self)),  # type: ignore[misc]
                Process("manage"),
            )
            self.scheduler.join(task)
            if not found:
                return
            self.sleep_until(self.scheduler.now + 15.0)
        self._note(found)

    def keep_events(self) -> None:
        """Note the events of leases, before they are purged and their ids are used again."""
        for row in self.reader.rows(
            "SELECT id, lease_id, event, status, at FROM lease_events ORDER BY id"
        ):
            self.events[row["id"], row["lease_id"]] = row

    def _comes_to_rest(self, unrest: Callable[[], Collection[str]]) -> bool:
        deadline = self.scheduler.now + REST
        while self.scheduler.now < deadline:
            self.sleep_until(self.scheduler.now + 15.0)
            if self.broken or not unrest():
                return not self.broken
        self._note([f"no rest after {REST:g} s: {each}" for each in sorted(unrest())])
        return False

    def _judge_history(self) -> None:
        leases = self.reader.stored().leases
        self.keep_events()
        events = list(self.events.values())
        self.counted.update(f"event {row['event']}" for row in events)
        taken, broken = rules.edges(events, leases)
        for before, event in taken:
            self.counted[f"edge {before} {event}"] += 1
        self._note(
            [
                *broken,
                *rules.queue_order(events, leases),
                *rules.same_answers(self.answers),
                *rules.secrets_are_kept(self.logged, (*SECRETS, *self.grants)),
                *rules.secrets_are_kept(map(repr, self.notified), (*SECRETS, *self.grants)),
                *rules.notified_once(self.notified, events),
            ]
        )

    def end(self) -> None:
        """Kill everything that is left, and let its threads end."""
        scheduler = self.scheduler
        self.is_calm = True
        scheduler.on_killed = lambda _: None
        for process in {task.process for task in scheduler.tasks}:
            if process is not scheduler.driver.process:
                scheduler.kill(process)
        scheduler.reap()
        self.reader.close()
        self._until_end.close()

    def _configure(self, group: str, option: str, value: Any) -> None:
        """Set an option of all processes, which other worlds share."""
        self.conf.set_override(option, value, group)
        self._until_end.callback(self.conf.clear_override, option, group)


def _limit(quota: int) -> int:
    """Return what the option of a quota is."""
    return -1 if quota == UNLIMITED else quota


@functools.cache
def _route(method: str, path: str) -> str:
    """Return the route that a request takes, as `gsaas.api.routes` has it."""
    return next(
        f"{method} {route.path}"
        for route in ROUTES
        if route.method == method and api_world.is_of(route, path)
    )


def run(seed: int, kept: Collection[int] | None = None) -> Outcome:
    """Run one seed, or of its happenings those that are *kept*; return what became of it."""
    facade.install()
    random.seed(seed)  # libraries draw from it: oslo.db does before it tries a transaction again
    # What is collected, and when, depends on what this process has done before.
    gc.disable()
    gc.freeze()  # what is left of modules and former worlds stays
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        world = World(seed, Path(folder))
        try:
            world.run(kept)
        except Stuck as stuck:
            world.broken.append(f"stuck: {stuck}")
        finally:
            outcome = Outcome(
                seed,
                world.broken,
                world.story.lines,
                world.story.digest(),
                world.scheduler.points,
                world.counted,
                world.reached,
            )
            world.end()
            baton.scheduler = None
            gc.enable()
    gc.collect()
    return outcome
