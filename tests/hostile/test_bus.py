# SPDX-License-Identifier: Apache-2.0
"""A host on a real RabbitMQ, with the account and the key that gsaas-manage gives it: what it can, and cannot, do."""

from __future__ import annotations

import json
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import kombu
import pytest
from amqp.exceptions import AccessRefused, NotAllowed, NotFound, PreconditionFailed
from kombu.exceptions import OperationalError

import gsaas.conf
from gsaas import rpc
from gsaas.checkup import bus as bus_check
from gsaas.cli import manage
from gsaas.context import RequestContext
from gsaas.engine.rpc_endpoint import may_send
from gsaas.objects.daemon import DesiredState
from gsaas.objects.gpu_report import GpuReport, GpuSnapshot
from gsaas.rpc import signatures
from gsaas.rpc.engine import EngineClient
from gsaas.rpc.hosts import AgentCallFailed
from gsaas.rpc.monitor import MonitorClient
from gsaas.rpc.rodvr import EndpointClient
from tests.support.ports import ADDRESS
from tests.support.rabbitmq import RabbitMQ
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.services

SECRET = "a secret of the controllers"
EVIL = "evil@gsaas-monitor"
REPORT = GpuReport("192.0.2.11", 10.0, GpuSnapshot(()))
TOKEN = "gAAAAAB-a-users-token"
LAUNCH = RequestContext(user_id="u", project_id="p", auth_token=TOKEN, roles=["member"])


class Engine:
    """Takes the messages of agents and of the API."""

    target = rpc.Target(version="1.1")

    def __init__(self) -> None:
        self.reports: list[str] = []
        self.tokens: list[str | None] = []

    def monitor_report(self, context: RequestContext, host: str, report: dict) -> dict:
        self.reports.append(host)
        return {"monitor_interval": None}

    def endpoint_started(self, context: RequestContext, host: str) -> dict:
        return {"serial": 7, "bindings": []}

    def endpoint_report(self, context: RequestContext, host: str, report: dict) -> None:
        self.reports.append(f"endpoint of {host}")

    def lease_changed(self, context: RequestContext, lease_id: str) -> None:
        self.tokens.append(context.auth_token)


class Agent:
    """Takes the calls of the engine."""

    target = rpc.Target(version="1.1")

    def __init__(self) -> None:
        self.applied: list[dict] = []
        self.told = threading.Event()

    def apply(self, context: RequestContext, wanted: dict) -> dict:
        self.applied.append(wanted)
        return {"serial": wanted["serial"]}

    def remove(self, context: RequestContext, port_id: str, serial: int) -> dict:
        return {"removed": port_id}

    def report_every(self, context: RequestContext, seconds: float) -> None:
        self.told.set()


GUIDE = Path(__file__).parents[2] / "doc" / "operator-guide.md"
HOSTS = ("gpu1", "evil")
DEFINITIONS = {
    "vhosts": [{"name": "gsaas"}, {"name": "/"}],
    "users": [
        {"name": name, "password": "x", "tags": ""}
        for name in ("controllers", *(f"gsaas-{host}" for host in HOSTS))
    ],
    "permissions": [
        {"user": "controllers", "vhost": "gsaas", "configure": ".*", "write": ".*", "read": ".*"}
    ],
}


@pytest.fixture(scope="module")
def broker() -> Iterator[RabbitMQ]:
    with RabbitMQ(definitions=DEFINITIONS) as broker:
        for command in (*guide(), *(command for host in HOSTS for command in printed(host))):
            assert command[0] == "rabbitmqctl"
            broker.control(*command[1:])
        yield broker


def guide() -> list[list[str]]:
    """The commands with which the operator's guide limits what hosts take from the broker."""
    found = [
        shlex.split(line)
        for line in GUIDE.read_text().splitlines()
        if line.startswith(("    rabbitmqctl set_vhost_limits", "    rabbitmqctl set_policy -p"))
    ]
    assert [command[1] for command in found] == ["set_vhost_limits", "set_policy"]
    return found


def printed(host: str) -> list[list[str]]:
    """What `gsaas-manage bus permissions` prints for a host with GPUs and servers."""
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()) as out:
        words = ("bus", "permissions", host, "--role", "gpu", "--role", "compute")
        assert manage.main(words) == 0
    return [shlex.split(line) for line in out.getvalue().splitlines()]


def url(broker: RabbitMQ, account: str, virtual_host: str = "gsaas") -> str:
    return f"rabbit://{account}:x@{ADDRESS}:{broker.port}/{virtual_host}"


@pytest.fixture
def connect(broker: RabbitMQ) -> Iterator[Callable[..., rpc.Bus]]:
    """Connect as a controller, or as an agent of a host, with the key of its role or of another."""
    with ExitStack() as buses:

        def connected(
            host: str | None = None,
            agent: str = rpc.MONITOR,
            *,
            key_of: str | None = None,
            signs: bool = True,
            enforce: bool = True,
        ) -> rpc.Bus:
            conf = gsaas.conf.load(files=[])
            conf.set_override("enforce", enforce, group="bus")
            if host is None:
                conf.set_override("secrets", [SECRET] if signs else [], group="bus")
                bus = rpc.connect(conf, url(broker, "controllers"))
            else:
                conf.set_override("host", host)
                name = rpc.agent_name(key_of or agent, host)
                keys = [signatures.key_of(SECRET, name)] if signs else []
                conf.set_override("host_keys", keys, group="bus")
                bus = rpc.connect(conf, url(broker, f"gsaas-{host}"), agent)
            buses.callback(bus.cleanup)
            return bus

        yield connected


@pytest.fixture
def serve(connect) -> Iterator[Callable[..., None]]:
    with ExitStack() as servers:

        def serving(server) -> None:
            server.start()
            servers.callback(server.wait)  # else it takes messages of the next test
            servers.callback(server.stop)

        yield serving


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent waits for its engine however busy this machine is."""
    monkeypatch.setattr("gsaas.rpc.engine.REPORT_TIMEOUT", PATIENCE)


def to_monitors(bus: rpc.Bus) -> MonitorClient:
    return MonitorClient(bus, timeout=PATIENCE)


@pytest.fixture
def engine(connect, serve) -> Engine:
    engine = Engine()
    serve(rpc.server(connect(), rpc.ENGINE, "ctl1", engine, may_send))
    return engine


@pytest.fixture
def raw(broker: RabbitMQ) -> Iterator[Callable[[], kombu.Connection]]:
    """Connect as the account of the host evil, without oslo.messaging."""
    with ExitStack() as connections:

        def connected(virtual_host: str = "gsaas") -> kombu.Connection:
            made = kombu.Connection(
                f"amqp://gsaas-evil:x@{ADDRESS}:{broker.port}/{virtual_host}",
                connect_timeout=PATIENCE,
            )
            connections.callback(made.release)
            return made

        yield connected


def test_an_agent_does_all_that_it_has_to_with_its_permissions(connect, serve, engine) -> None:
    gpu, compute = connect("gpu1"), connect("gpu1", rpc.RODVR)
    rpc.check(gpu)
    monitor, endpoint = Agent(), Agent()
    serve(rpc.agent_server(gpu, rpc.MONITOR, "gpu1", monitor))
    serve(rpc.agent_server(compute, rpc.RODVR, "gpu1", endpoint))
    assert EngineClient(gpu).monitor_report("gpu1", REPORT).monitor_interval is None
    assert EngineClient(compute).endpoint_started("gpu1", PATIENCE).serial == 7
    assert engine.reports == ["gpu1"]
    monitors = to_monitors(connect())
    assert monitors.apply("gpu1", DesiredState(7)) == {"serial": 7}
    monitors.report_every(["gpu1"], 5.0)
    assert monitor.told.wait(PATIENCE)
    assert EndpointClient(connect(), PATIENCE).remove("gpu1", "port", 8) == {"removed": "port"}


def test_a_host_cannot_report_in_the_name_of_another(connect, engine) -> None:
    evil = EngineClient(connect("evil"))
    with pytest.raises(rpc.BusError, match="evil@gsaas-monitor sent it in the name of gpu1"):
        evil.monitor_report("gpu1", REPORT)
    unsigned = EngineClient(connect("evil", rpc.RODVR, signs=False))
    with pytest.raises(rpc.BusError, match="it is not signed"):
        unsigned.endpoint_report("gpu1", {})
    EngineClient(connect("gpu1")).monitor_report("gpu1", REPORT)
    assert engine.reports == ["gpu1"]


def test_a_refused_message_is_one_line_in_the_log(connect, engine, caplog) -> None:
    with pytest.raises(rpc.BusError, match="it is not signed"):
        EngineClient(connect("evil", signs=False)).monitor_report("gpu1", REPORT)
    (line,) = [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
    assert line.exc_info is None
    assert "monitor_report was not believed: it is not signed" in line.getMessage()


@pytest.mark.parametrize("key_of", [rpc.RODVR, rpc.MONITOR])
def test_a_compute_host_cannot_report_gpus(connect, engine, key_of) -> None:
    """Whatever it says that it is: of the two keys of a host it has that of its endpoint."""
    agent = rpc.RODVR if key_of == rpc.RODVR else rpc.MONITOR
    compute = connect("gpu1", agent, key_of=rpc.RODVR)
    with pytest.raises(rpc.BusError, match=r"in the name of gpu1|not that of gpu1@gsaas-monitor"):
        EngineClient(compute).monitor_report("gpu1", REPORT)
    assert engine.reports == []


def test_a_host_cannot_command_another(connect, serve, raw) -> None:
    """Nothing keeps it from sending: it may publish to the default exchange, as answers need."""
    agent = Agent()
    serve(rpc.agent_server(connect("gpu1"), rpc.MONITOR, "gpu1", agent))
    until(lambda: to_monitors(connect()).apply("gpu1", DesiredState(1)), "the agent")
    evil = connect("evil")
    with pytest.raises((AgentCallFailed, rpc.BusError)):
        MonitorClient(evil, timeout=3.0).apply("gpu1", DesiredState(2))
    command = {"method": "apply", "args": {"wanted": {"serial": 3}}, "version": "1.0"}
    message = {"oslo.version": "2.0", "oslo.message": json.dumps(command | {"_unique_id": "x"})}
    raw().Producer().publish(message, routing_key="gpu1@gsaas-monitor", serializer="json")
    to_monitors(connect()).apply("gpu1", DesiredState(4))
    assert [wanted["serial"] for wanted in agent.applied] == [1, 4]


@pytest.mark.parametrize(
    "queue",
    [
        *("gsaas-engine", "gsaas-engine.ctl1"),
        *("gpu1@gsaas-monitor", "gpu1@gsaas-monitor.agent", "gpu1@gsaas-rodvr"),
    ],
)
def test_a_host_reads_no_queue_of_another_host_nor_of_the_engine(
    raw, connect, serve, engine, queue
) -> None:
    serve(rpc.agent_server(connect("gpu1"), rpc.MONITOR, "gpu1", Agent()))
    serve(rpc.agent_server(connect("gpu1", rpc.RODVR), rpc.RODVR, "gpu1", Agent()))
    channel = raw().channel()
    with pytest.raises(AccessRefused):
        channel.basic_get(queue)


@pytest.mark.parametrize("key", ["gsaas-engine", "gpu1@gsaas-monitor", "#", "*", ""])
def test_a_host_cannot_have_messages_of_others_copied_to_its_own_queue(raw, engine, key) -> None:
    """Neither to the queue itself, nor by way of an exchange of its own."""
    channel = raw().channel()
    channel.queue_declare(EVIL, durable=False, auto_delete=False)
    with pytest.raises(AccessRefused):
        channel.queue_bind(EVIL, rpc.EXCHANGE, key)
    channel = raw().channel()
    channel.exchange_declare(f"{EVIL}_fanout", "fanout", durable=False, auto_delete=True)
    with pytest.raises(AccessRefused):
        channel.exchange_bind(f"{EVIL}_fanout", rpc.EXCHANGE, key)


def test_a_host_reads_no_answers_to_the_engine_or_to_another_host(raw, connect, serve) -> None:
    serve(rpc.agent_server(connect("gpu1"), rpc.MONITOR, "gpu1", Agent()))
    controllers = connect()
    to_monitors(controllers).apply("gpu1", DesiredState(1))
    for name in (controllers._driver._reply_q, "gpu1@gsaas-monitor_reply_" + "0" * 32):
        with pytest.raises(AccessRefused):
            raw().channel().queue_declare(name, passive=False)
        with pytest.raises(AccessRefused):
            raw().channel().basic_get(name)


def test_users_tokens_reach_the_engine_and_no_host(raw, connect, engine, serve) -> None:
    serve(rpc.agent_server(connect("evil"), rpc.MONITOR, "evil", Agent()))
    EngineClient(connect()).lease_changed(LAUNCH, "lease-1")
    until(lambda: engine.tokens == [TOKEN], "the message of the API")
    for queue in ("gsaas-engine", "gsaas-engine_fanout"):
        with pytest.raises(AccessRefused):
            raw().channel().basic_get(queue)
    with pytest.raises(AccessRefused):
        raw().channel().exchange_declare("gsaas-engine_fanout", "fanout", auto_delete=True)


def test_a_host_cannot_send_what_only_the_api_sends(connect, engine) -> None:
    EngineClient(connect("evil")).lease_changed(LAUNCH, "lease-1")
    EngineClient(connect()).lease_changed(LAUNCH, "lease-2")
    until(lambda: engine.tokens, "the message of the API")
    assert engine.tokens == [TOKEN]


def test_a_host_has_nothing_to_do_on_the_bus_of_nova(raw) -> None:
    with pytest.raises((NotAllowed, AccessRefused)):
        raw("/").connect()


@pytest.mark.parametrize("exchange", [rpc.EXCHANGE, "gsaas", "gsaas-engine_fanout"])
def test_a_host_cannot_read_users_tokens_by_replacing_the_exchange(
    raw, connect, engine, exchange
) -> None:
    """Topic permissions do not apply to an exchange that it declares."""
    api = EngineClient(connect())
    api.lease_changed(LAUNCH, "lease-1")  # this connection declares what it uses, if anything
    for type_ in ("direct", "topic"):
        for attack in (
            lambda channel: channel.exchange_delete(exchange),
            lambda channel, as_=type_: channel.exchange_declare(exchange, as_, auto_delete=False),
        ):
            with pytest.raises(AccessRefused):
                attack(raw().channel())
    channel = raw().channel()
    channel.queue_declare(EVIL, durable=False, auto_delete=False)
    with suppress(AccessRefused, NotFound):
        channel.queue_bind(EVIL, exchange, rpc.ENGINE)
    api.lease_changed(LAUNCH, "lease-2")
    until(lambda: engine.tokens == [TOKEN, TOKEN], "both messages of the API")
    assert raw().channel().basic_get(EVIL, no_ack=True) is None


def test_nobody_can_replace_the_exchange(broker) -> None:
    """RabbitMQ refuses that to every account, whatever its permissions."""
    for attack in (
        lambda channel: channel.exchange_delete(rpc.EXCHANGE),
        lambda channel: channel.exchange_declare(rpc.EXCHANGE, "direct", durable=True),
    ):
        with (
            kombu.Connection(url(broker, "controllers").replace("rabbit", "amqp", 1)) as made,
            pytest.raises((AccessRefused, PreconditionFailed)),
        ):
            attack(made.channel())
    listed = broker.control("list_exchanges", "-p", "gsaas", "name", "type").splitlines()
    assert f"{rpc.EXCHANGE}\ttopic" in listed


def forge(raw, question: dict, answer: object) -> None:
    """Answer *question*, as oslo.messaging has it on the wire, from the account of evil."""
    reply = {"result": answer, "failure": None, "ending": True, "_msg_id": question["_msg_id"]}
    message = {"oslo.version": "2.0", "oslo.message": json.dumps(reply | {"_unique_id": "y"})}
    raw().Producer().publish(message, routing_key=question["_reply_q"], serializer="json")


@pytest.fixture
def questions(broker) -> Iterator[Callable[[str], dict]]:
    """Take a question from a queue, as one who can read the bus: a test that needs no luck with the message's id."""
    with kombu.Connection(url(broker, "controllers").replace("rabbit", "amqp", 1)) as made:
        channel = made.channel()

        def take(topic: str) -> dict:
            channel.queue_declare(topic, durable=False, auto_delete=False)
            channel.queue_bind(topic, rpc.EXCHANGE, topic)
            got = until(lambda: channel.basic_get(topic, no_ack=True), "a question")
            return json.loads(json.loads(got.body)["oslo.message"])

        yield take


def signed_by_evil(question: dict, answer: object) -> dict:
    """An answer that is signed with a key that evil has."""
    name = rpc.agent_name(rpc.MONITOR, "evil")
    keys = [signatures.key_of(SECRET, name)]
    evil = signatures.Identity.of_agent(name, keys, max_age=60, enforce=True, clock=time.time)
    return evil.sign_answer(answer, question[f"_context_{signatures.SIGNATURE}"])


@pytest.mark.parametrize("sign", [lambda _, answer: answer, signed_by_evil])
def test_a_host_cannot_answer_for_another_nor_for_the_engine(raw, connect, questions, sign) -> None:
    """Not even where it knows the number of the question, which oslo.messaging draws at random."""
    monitors, gpu1 = to_monitors(connect()), EngineClient(connect("gpu1"))
    for topic, call, answer in (
        (
            rpc.agent_name(rpc.MONITOR, "gpu1"),
            lambda: monitors.apply("gpu1", DesiredState(1)),
            {"serial": 1},
        ),
        (rpc.ENGINE, lambda: gpu1.monitor_report("gpu1", REPORT), {"monitor_interval": 1e9}),
    ):
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(call)
            question = questions(topic)
            forge(raw, question, sign(question, answer))
            with pytest.raises((AgentCallFailed, rpc.BusError), match="not believed"):
                asked.result(PATIENCE)


def test_a_forged_failure_of_a_call_does_no_more_than_silence_would(raw, connect, questions):
    """Failures are not signed. Whoever could send one would have to know the number of the question, too."""
    monitors = to_monitors(connect())
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(monitors.apply, "gpu1", DesiredState(1))
        question = questions(rpc.agent_name(rpc.MONITOR, "gpu1"))
        failure = {
            "class": "SystemExit",
            "module": "builtins",
            "message": "\x1b[2Jowned\n",
            "tb": ["a line of a log"] * 1000,
            "args": [],
            "kwargs": {},
        }
        reply = {"result": None, "failure": json.dumps(failure), "ending": True}
        reply |= {"_msg_id": question["_msg_id"], "_unique_id": "z"}
        message = {"oslo.version": "2.0", "oslo.message": json.dumps(reply)}
        raw().Producer().publish(message, routing_key=question["_reply_q"], serializer="json")
        with pytest.raises(AgentCallFailed, match="the monitor of gpu1 reports an error") as failed:
            asked.result(PATIENCE)
    assert str(failed.value).isprintable()
    assert len(str(failed.value)) < 2000


def test_while_nothing_is_enforced_unsigned_answers_are_taken(connect, serve, engine) -> None:
    """So hosts can get their keys one after the other."""
    without = Agent()
    serve(rpc.agent_server(connect("gpu1", signs=False), rpc.MONITOR, "gpu1", without))
    assert to_monitors(connect(enforce=False)).apply("gpu1", DesiredState(7)) == {"serial": 7}
    with pytest.raises(AgentCallFailed, match="not signed"):
        to_monitors(connect()).apply("gpu1", DesiredState(8))


# What a host writes into the log of the engine


class StrictEngine(Engine):
    """Refuses what is no report, with text of the sender's choice."""

    def monitor_report(self, context: RequestContext, host: str, report: dict) -> dict:
        if report.get("gpus") == []:
            return super().monitor_report(context, host, report)
        raise ValueError(f"{report!r} is no report")


RUBBISH = [
    *(b"", b"{", b"\xff\xfe", b"[]", b"{}", b"17", b"null"),
    b'{"method":"x"}',
    b'{"oslo.version":"9.0","oslo.message":"{}"}',
    b'{"oslo.version":"2.0","oslo.message":"{"}',
    b'{"oslo.version":"2.0","oslo.message":"[]"}',
    b'{"oslo.version":"2.0","oslo.message":"{}"}',
]
MESSAGES: list[dict] = [
    {"method": "no such method", "args": {}},
    {"method": "target", "args": {}},
    {"method": 17, "args": {}},
    {"method": "monitor_report", "args": []},
    {"method": "monitor_report", "args": {"host": "gpu1"}},
    {"method": "monitor_report", "args": {"host": "gpu1", "report": {}}, "version": "77.0"},
    {"method": "monitor_report", "args": {}, "_context_roles": 5, "_context_is_admin": "\n\n"},
    {"method": "lease_changed", "args": {"lease_id": "x" * 5000}},
    {"method": "lease_changed", "args": {}, "_msg_id": "m", "_reply_q": "no such queue\n" * 9},
]


def on_the_wire(message: dict, number: int) -> bytes:
    inner = json.dumps(message | {"_unique_id": f"u{number}"})
    return json.dumps({"oslo.version": "2.0", "oslo.message": inner}).encode()


def test_a_host_that_sends_rubbish_writes_less_than_it_sends(raw, connect, serve, caplog) -> None:
    """Sixty bytes made a traceback of 3.7 kB. Others' lines are not hidden by that, either."""
    engine = StrictEngine()
    serve(rpc.server(connect(), rpc.ENGINE, "ctl1", engine, may_send))
    evil, gpu1 = EngineClient(connect("evil")), EngineClient(connect("gpu1"))
    gpu1.monitor_report("gpu1", REPORT)
    caplog.clear()
    producer, sent = raw().Producer(), 0
    for number in range(200):
        for body in (*RUBBISH, *(on_the_wire(each, number) for each in MESSAGES)):
            producer.publish(
                body,
                routing_key=rpc.ENGINE,
                content_type="application/json",
                content_encoding="utf-8",
            )
            sent += len(body)
    for _ in range(50):
        with pytest.raises(rpc.BusError, match="is no report"):
            evil._call("monitor_report", PATIENCE, host="evil", report={"x\n" * 500: "x" * 5000})
    with pytest.raises(rpc.BusError, match="is no report"):
        gpu1._call("monitor_report", PATIENCE, host="gpu1", report={"gpus": 1})
    gpu1.monitor_report("gpu1", REPORT)
    assert engine.reports == ["gpu1", "gpu1"]
    of_evil = [line for line in caplog.messages if "monitor_report of evil is refused" in line]
    of_gpu1 = [line for line in caplog.messages if "monitor_report of gpu1 is refused" in line]
    assert (len(of_evil), len(of_gpu1)) == (1, 1)
    assert all(record.exc_info is None for record in caplog.records)
    assert len(caplog.text) < 60_000 < sent / 5
    assert max(map(len, caplog.messages)) <= 500
    assert all(line.isprintable() for line in caplog.messages)


def test_a_bug_of_the_engine_is_a_traceback_all_the_same(connect, serve, caplog) -> None:
    class Broken(Engine):
        def monitor_report(self, context: RequestContext, host: str, report: dict) -> dict:
            raise ZeroDivisionError

    serve(rpc.server(connect(), rpc.ENGINE, "ctl1", Broken(), may_send))
    for _ in range(3):
        with pytest.raises(rpc.BusError):
            EngineClient(connect("gpu1")).monitor_report("gpu1", REPORT)
    assert caplog.text.count("Traceback") == 1


# What a host takes from the broker


def test_a_host_cannot_declare_queues_without_end(broker, raw, connect, serve, engine) -> None:
    """By the limit of the virtual host that the operator's guide sets. Who is connected does not notice."""
    agent = Agent()
    serve(rpc.agent_server(connect("gpu1"), rpc.MONITOR, "gpu1", agent))
    gpu1, monitors = EngineClient(connect("gpu1")), to_monitors(connect())
    gpu1.monitor_report("gpu1", REPORT)
    monitors.apply("gpu1", DesiredState(1))
    broker.control("set_vhost_limits", "-p", "gsaas", '{"max-queues": 60}')
    try:
        channel = raw().channel()
        with pytest.raises(PreconditionFailed, match="queue limit"):
            for number in range(1000):
                channel.queue_declare(f"{EVIL}_reply_{number}", auto_delete=False)
        listed = broker.control("list_queues", "-p", "gsaas", "name").splitlines()
        assert sum(name.startswith(EVIL) for name in listed) < 60
        gpu1.monitor_report("gpu1", REPORT)
        assert monitors.apply("gpu1", DesiredState(2)) == {"serial": 2}
    finally:
        for command in guide():
            broker.control(*command[1:])
        for name in broker.control("list_queues", "-p", "gsaas", "name").splitlines():
            if name.startswith(EVIL):
                raw().channel().queue_delete(name)


def test_a_host_cannot_connect_without_end(raw) -> None:
    """By the limits that `gsaas-manage bus permissions` sets for its account."""
    made = [raw() for _ in range(70)]
    with pytest.raises(NotAllowed, match="connection limit"):
        for each in made:
            each.connect()
    connection = made[0]
    with pytest.raises((NotAllowed, OperationalError)):
        for _ in range(300):
            connection.channel()


def test_agents_of_an_older_release_are_named(broker, connect) -> None:
    """Those took messages from one queue for all hosts, through an exchange that all could configure."""
    connection = kombu.Connection(url(broker, "controllers").replace("rabbit", "amqp", 1))
    with connection, connection.channel() as channel:
        channel.queue_declare("gsaas-monitor", durable=False, auto_delete=True)
        channel.basic_consume("gsaas-monitor")
        found = {finding.said: finding for finding in bus_check.check(connect())}
    (said,) = [said for said in found if "older release" in said]
    assert (
        said == "1 gsaas-monitor of an older release are connected, and reach no engine of this one"
    )
    assert "gsaas-manage bus permissions HOST" in found[said].todo


def test_the_command_applies_the_permissions_itself(broker, tmp_path, monkeypatch) -> None:
    """rabbitmqctl is a script here, which records what it is told."""
    script = tmp_path / "rabbitmqctl"
    script.write_text(f'#!/bin/sh\necho "$1" "$3" >> {tmp_path}/told\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert manage.main(["bus", "permissions", "gpu1", "--role", "gpu", "--apply"]) == 0
    told = (tmp_path / "told").read_text().splitlines()
    limits = 'set_user_limits {"max-connections": 64, "max-channels": 256}'
    assert told == ["set_permissions gsaas", "set_topic_permissions gsaas", limits]
