# SPDX-License-Identifier: Apache-2.0
"""A controller with 1,000 hosts, 8,000 GPUs and 10,000 leases: CPU time of each process, messages and rows.

An engine, an API worker, MariaDB and RabbitMQ are real. So is all that the agents do on the bus: a load program runs
the monitors and RODVR endpoints of all hosts, each with connections and keys of its own, on invented GPUs and a kernel
that only remembers (`bench.fleets.agents`); its CPU time is listed apart. The leases belong to programs that reach
their GPUs through endpoints, so that neither Nova nor Keystone is needed. They are in the database before anything
starts.

1. start       everything starts at once
2. steady      nothing happens but reports
3. launches    clients launch leases and release them
4. no engine   the engine is killed, and started again a minute later
5. no bus      RabbitMQ is killed, and started again a minute later

Everything is on one machine, so what takes longer than its cores allow takes longer than in a cloud; CPU times hold all
the same. Monitors report every 30 s and endpoints and daemons every 60 s, because two cores do not carry the agents of
1,000 hosts beside the rest at their usual 10 and 30 s.
"""

from __future__ import annotations

import http
import http.client
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.fleets import load, rows, usage
from bench.fleets.agents import Plan, host_name
from bench.report import machine, median, progress
from gsaas.db import clock, migration
from gsaas.db.database import Database
from tests.support.databases import MariaDB
from tests.support.ports import free_ports
from tests.support.rabbitmq import RabbitMQ

DIES_WITH_US = ("setpriv", "--pdeathsig=KILL", "--")
"""What a command begins with so that it does not outlive this process."""
TOKEN = "of-the-fleet-" + "0" * 16
SECRET = secrets.token_urlsafe(32)
SETTINGS = """\
[DEFAULT]
transport_url = {bus}
host = controller

[database]
connection = {database}

[bus]
secrets = {secret}

[engine]
cloud = of-the-fleet

[quotas]
cgpus = -1
gpu_memory_mb = -1
leases = -1

[api]
auth_strategy = token-file
token_file = {folder}/tokens.json
"""


@dataclass(frozen=True)
class Size:
    """How large the fleet is, and for how long it is looked at."""

    hosts: int = 1000
    gpus: int = 8
    leases: int = 10_000
    monitor_interval: float = 30.0
    report_interval: float = 60.0
    processes: int = 4
    """Processes that play the agents."""
    clients: int = 8
    seconds: float = 60.0
    """Of a phase in which the fleet is measured, and for which a server is away."""
    patience: float = 600.0


FULL = Size()
QUICK = Size(
    hosts=6,
    gpus=2,
    leases=10,
    monitor_interval=1.0,
    report_interval=2.0,
    processes=1,
    clients=2,
    seconds=5.0,
    patience=120.0,
)


def run(quick: bool = False) -> dict[str, Any]:
    """Return what each process used in each phase. *quick* has six hosts, and measures for some seconds."""
    size = QUICK if quick else FULL
    with Fleet(size) as fleet:
        phases = [
            fleet.measured("start", fleet.start),
            fleet.measured("steady", lambda: fleet.wait(size.seconds)),
            fleet.measured("launches", fleet.launch),
            fleet.measured("no engine", fleet.restart_engine),
            fleet.measured("no bus", fleet.restart_bus),
        ]
    return {
        "bench": "fleet",
        "machine": machine(),
        "rows": [*(row for phase in phases for row in phase.processes), *summaries(phases)],
        "reach": bounds(phases, size),
    }


@dataclass
class Phase:
    """What was measured while something happened."""

    name: str
    seconds: float
    """Until it had happened."""
    processes: list[dict[str, Any]]
    counters: dict[str, float]
    """What was counted, for each second."""
    connections: int
    """The most connections of RabbitMQ."""
    sent: Counter[str]
    """Messages of agents, by method."""
    unanswered: Counter[str]
    slowest: float
    """Seconds of the slowest message of an agent that was answered or given up."""
    usual: float
    """The median of these."""
    launched: load.Launched | None = None
    problem: str | None = None
    """What did not happen within the patience of the benchmark."""


class NotReportedError(Exception):
    """Not all hosts have reported in time."""


def summaries(phases: list[Phase]) -> list[dict[str, Any]]:
    """Return the rows about the bus and the database, and those about launches."""
    found: list[dict[str, Any]] = [
        {
            "phase": phase.name,
            "seconds": phase.seconds,
            "messages_s": phase.counters["messages"],
            "connections": phase.connections,
            "rows_written_s": phase.counters["rows_written"],
            "rows_read_s": phase.counters["rows_read"],
            "statements_s": phase.counters["statements"],
            "commits_s": phase.counters["commits"],
        }
        for phase in phases
    ]
    found += [
        {
            "phase": phase.name,
            "sent_by_agents": phase.sent.total(),
            "not_answered": phase.unanswered.total(),
            "usual_ms": phase.usual * 1e3,
            "slowest_s": phase.slowest,
        }
        for phase in phases
    ]
    found += [
        {
            "phase": phase.name,
            "launches": len(phase.launched.ready),
            "failed": len(phase.launched.failed),
            "first_failure": next(iter(phase.launched.failed), None),
            "launches_s": phase.launched.per_second,
            "median_ms_until_active": phase.launched.median_ms,
        }
        for phase in phases
        if phase.launched is not None
    ]
    found += [{"phase": phase.name, "problem": phase.problem} for phase in phases if phase.problem]
    return found


def bounds(phases: list[Phase], size: Size) -> list[dict[str, Any]]:
    """Return what is to be reached, and what was measured."""
    named = {phase.name: phase for phase in phases}
    steady = named["steady"]
    expected = size.hosts / size.monitor_interval + 2 * size.hosts / size.report_interval
    engine = next(row for row in steady.processes if row["process"] == "engine")
    launched = named["launches"].launched
    return [
        {
            "what": "phases after which not all hosts had reported in time",
            "value": float(sum(phase.problem is not None for phase in phases)),
            "bound": "<= 0",
        },
        {
            "what": "reports that were not answered while nothing happened",
            "value": float(steady.unanswered.total()),
            "bound": "<= 0",
        },
        {
            "what": "percent of a core that the engine needs while nothing happens",
            "value": engine["percent_of_a_core"],
            "bound": "<= 100",
        },
        {
            "what": "launches that failed",
            "value": float(len(launched.failed)) if launched else 0.0,
            "bound": "<= 0",
        },
        *(
            {
                "what": f"{name}: messages of agents against those that they send in this time anyway",
                "value": named[name].sent.total() / (expected * named[name].seconds),
                "bound": "<= 2",
            }
            for name in ("no engine", "no bus")
        ),
    ]


class Fleet:
    """The servers, the controller's processes and the agents. Use it in a `with` block."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._stack = ExitStack()
        self._agents: list[subprocess.Popen[str]] = []
        self._controllers: list[subprocess.Popen[str]] = []
        """All that were started, also those that have ended."""
        self._launched: load.Launched | None = None
        (self._port,) = free_ports(1)

    def __enter__(self) -> Fleet:
        with self._stack:
            enter = self._stack.enter_context
            self._folder = Path(enter(tempfile.TemporaryDirectory(prefix="gsaas-fleet-")))
            self._server = enter(MariaDB())
            self._broker = enter(RabbitMQ())
            url = self._server.create("gsaas")
            migration.upgrade(url)
            self._database = Database.open(url)
            self._stack.callback(self._database.close)
            rows.fill(self._database, self._size.hosts, self._size.gpus, self._size.leases)
            self._configure(url)
            self._stack.callback(lambda: end([*self._controllers, *self._agents]))
            self._engine = self._start_engine()
            self._api = self._start_api()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- what happens -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start all agents; return when all have reported, and all endpoints have their bindings."""
        began = self._now()
        share = self._size.hosts // self._size.processes
        plan = Plan(
            self._broker.url,
            SECRET,
            0,
            share,
            self._size.gpus,
            self._size.monitor_interval,
            self._size.report_interval,
        )
        for number in range(self._size.processes):
            own = replace(plan, first=number * share).to_argument()
            command = [*DIES_WITH_US, sys.executable, "-m", "bench.fleets.agents", own]
            self._agents.append(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
        for agent in self._agents:
            assert agent.stdout is not None
            assert agent.stdout.readline() == "started\n", "the load program has ended"
        self._until_reported(began)

    def launch(self) -> None:
        """Have clients launch and release leases."""
        hosts = [host_name(number) for number in range(self._size.hosts)]
        self._launched = load.launch(
            self._port, TOKEN, hosts, self._size.clients, self._size.seconds
        )

    def wait(self, seconds: float) -> None:
        """Let nothing happen for some seconds."""
        time.sleep(seconds)

    def restart_engine(self) -> None:
        """Kill the engine, start it later, and return when all agents have reported since then."""
        self._engine.kill()
        self._engine.wait()
        self.wait(self._size.seconds)
        began = self._now()
        self._engine = self._start_engine()
        self._until_reported(began)

    def restart_bus(self) -> None:
        """Kill RabbitMQ, start it later, and return when all agents have reported since then."""
        self._broker.kill()
        self.wait(self._size.seconds)
        began = self._now()
        self._broker.start()
        self._until_reported(began)

    # -- what is measured -------------------------------------------------------------------------

    def measured(self, name: str, act: Callable[[], None]) -> Phase:
        """Return what everything used while *act* was carried out."""
        self._journals()
        self._launched = None
        before, counted, broker = self._cpu(), self._counters(), self._broker.pid
        problem = None
        progress(f"{name} begins")
        with self._most_connections() as most:
            begun = time.monotonic()
            try:
                act()
            except NotReportedError as error:
                problem = str(error)
            seconds = time.monotonic() - begun
        progress(f"{name} took {seconds:.0f} s{f': {problem}' if problem else ''}")
        after, counted_after = self._cpu(), self._counters()
        if self._broker.pid != broker:
            counted["messages"] = 0  # it counts from its start
        sent: Counter[str] = Counter()
        unanswered: Counter[str] = Counter()
        took: list[float] = []
        for journal in self._journals():
            sent.update(journal["sent"])
            unanswered.update(journal["unanswered"])
            took += journal["seconds"]
        return Phase(
            name,
            seconds,
            [
                {
                    "phase": name,
                    "process": process,
                    "percent_of_a_core": 100 * (after[pids] - before.get(pids, 0.0)) / seconds,
                    "mib": usage.resident_mib(*pids),
                }
                for process, pids in self._pids().items()
            ],
            {key: (counted_after[key] - counted[key]) / seconds for key in counted},
            max(most, default=0),
            sent,
            unanswered,
            max(took, default=0.0),
            median(took) if took else 0.0,
            self._launched,
            problem,
        )

    def _pids(self) -> dict[str, tuple[int, ...]]:
        return {
            "engine": (self._engine.pid,),
            "API worker": (self._api.pid,),
            "MariaDB": (self._server.pid,),
            "RabbitMQ": (self._broker.pid,),
            "agents (load)": tuple(agent.pid for agent in self._agents),
        }

    def _cpu(self) -> dict[tuple[int, ...], float]:
        """Return the CPU time that each kind of process has used, by the ids of its processes."""
        return {pids: usage.cpu_seconds(*pids) for pids in self._pids().values()}

    def _counters(self) -> dict[str, float]:
        overview = self._broker.control("eval", "rabbit_global_counters:overview().")
        received = usage.messages(overview)["messages_received_total"]
        return {"messages": received, **usage.database_counters(self._database.engine)}

    @contextmanager
    def _most_connections(self) -> Iterator[list[int]]:
        """Yield a list to which the number of RabbitMQ's connections is added each second, and at the end."""
        seen: list[int] = []
        done = threading.Event()

        def look() -> None:
            while not done.wait(1):
                seen.append(usage.connections(self._broker.port))
            seen.append(usage.connections(self._broker.port))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            yield seen
        finally:
            done.set()
            looking.join()

    def _journals(self) -> list[dict[str, Any]]:
        """Return what each process of agents has sent since the last call."""
        found = []
        for agent in self._agents:
            assert agent.stdin is not None and agent.stdout is not None
            agent.stdin.write("\n")
            agent.stdin.flush()
            found.append(json.loads(agent.stdout.readline()))
        return found

    def _until_reported(self, began: Any) -> None:
        """Wait until all monitors and endpoints have reported since *began*, and daemons of all hosts ever."""
        wanted = (self._size.hosts,) * 3
        deadline = time.monotonic() + self._size.patience
        while (found := rows.reported_since(self._database, began)) != wanted:
            if time.monotonic() > deadline:
                raise NotReportedError(
                    f"of {wanted[0]} hosts, {found[0]} monitors and {found[1]} endpoints have reported, and the "
                    f"daemons of {found[2]} hosts"
                )
            time.sleep(0.25)

    def _now(self) -> Any:
        with self._database.reading() as connection:
            return clock.now(connection)

    # -- processes --------------------------------------------------------------------------------

    def _configure(self, url: str) -> None:
        tokens = [
            {"token": TOKEN, "user_id": "user-1", "project_id": "project-0", "roles": ["member"]}
        ]
        (self._folder / "tokens.json").write_text(json.dumps(tokens))
        (self._folder / "tokens.json").chmod(0o600)
        (self._folder / "gsaas.conf").write_text(
            SETTINGS.format(bus=self._broker.url, database=url, secret=SECRET, folder=self._folder)
        )

    def _start_engine(self) -> subprocess.Popen[str]:
        """Start an engine; return when it has started."""
        log = self._folder / f"engine-{time.monotonic_ns()}.log"
        process = self._spawn(
            log,
            *("-m", "bench.fleets.controllers"),
            *("--config-file", str(self._folder / "gsaas.conf")),
        )
        return until(process, log, lambda: "gsaas-engine has started" in log.read_text())

    def _start_api(self) -> subprocess.Popen[str]:
        """Start an API worker; return when it answers."""
        log = self._folder / "api.log"
        process = self._spawn(
            log,
            *("-m", "gunicorn", "--workers=1", "--threads=16", "--keep-alive=60"),
            *(f"--bind=127.0.0.1:{self._port}", "bench.fleets.controllers:api()"),
        )
        return until(process, log, lambda: answers(self._port))

    def _spawn(self, log: Path, *words: str) -> subprocess.Popen[str]:
        settings = {
            "GSAAS_CONFIG_FILES": str(self._folder / "gsaas.conf"),
            "HOME": str(self._folder),  # gunicorn makes a socket there
        }
        with log.open("w") as file:
            process = subprocess.Popen(
                [*DIES_WITH_US, sys.executable, *words],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **settings},
                text=True,
            )
        self._controllers.append(process)
        return process


def until(
    process: subprocess.Popen[str], log: Path, look: Callable[[], bool], patience: float = 120.0
) -> subprocess.Popen[str]:
    """Return *process* once *look* returns true."""
    deadline = time.monotonic() + patience
    while not look():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"a process did not start:\n{log.read_text()}")
        time.sleep(0.1)
    return process


def answers(port: int) -> bool:
    """Return whether the API at *port* answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/healthcheck")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


def end(processes: list[subprocess.Popen[str]]) -> None:
    """End processes, those first that were started last."""
    for process in reversed(processes):
        process.terminate()
    for process in processes:
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
