# SPDX-License-Identifier: Apache-2.0
"""A tenant who attacks the protocol of the middleware, against the daemon of its own lease and all that is beside it.

Daemons are units of the monitor's shipped unit. What an attack sends is made of what a real client has sent, with
random numbers of a fixed seed. It may crash its own daemon, which is started again at the same address, and gains
nothing: a neighbour on the same device computes all the time, and no other daemon is started again.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from gsaas.gpu_host.daemons import unit
from gsaas.objects.daemon import Daemon
from gsaas.prove.clients.session import SIDE
from tests.openstack.bed.errors import BedError
from tests.support import cpu_host, ggml
from tests.support.cpu_host import CpuHost
from tests.support.ggml import REPOSITORY
from tests.support.gpu_machine import SECRET, GpuMachine
from tests.support.rabbitmq import RabbitMQ
from tests.support.shipped_monitor import PACKAGES, SOURCE
from tests.support.waiting import until

pytestmark = pytest.mark.kernel

SEED = 20261127
MINE, NEIGHBOUR, OTHER = 20000, 20010, 20020
"""Ports: of the attacked daemon, of a neighbour's on the same device, and of a third lease's on another device."""
MARK = "/opt/before-the-attack"
LENGTHS = (1 << 63, (1 << 63) - 1, (1 << 64) - 1, 1 << 40, 1 << 32, (1 << 31) - 1, 0)
TVM_COMMAND = REPOSITORY / "tests/support/compute/tvm_command.py"
DEVICES = 2
CONFIGURATION = """\
[DEFAULT]
transport_url = {bus}
# {secret}
[monitor]
source = cpu
cpu_devices = 2
cpu_device_memory_mb = 1024
monitor_interval = 1
[remoting]
driver = {driver}
[daemons]
folder = /opt
command = /usr/bin/python3 {command} --host {{address}} --port {{port}}
health = listens
first_pause = 0.1
longest_pause = 0.2
"""
MATRIX = 4 * SIDE * SIDE
"""Bytes of a matrix that a client multiplies."""
PATIENCE = 10
"""Seconds after which an attack gives a connection up on which nothing happens."""


@pytest.fixture(scope="module")
def machine() -> Iterator[GpuMachine]:
    if os.geteuid() != 0:
        pytest.skip("a machine needs root")
    try:
        with GpuMachine() as machine:
            yield machine
    except BedError as error:
        pytest.skip(str(error))


@dataclass(frozen=True)
class Middleware:
    """A middleware whose daemons compute on CPU devices."""

    driver: str
    command: str
    """The arguments of Python for its daemon."""
    variable: str
    """Where a program finds the address of its only cGPU."""
    settings: str = ""
    """More of `[daemons]`."""
    libraries: str = ""
    """The folder of its client's libraries."""


def tvm_rpc() -> Middleware:
    """GSaaS's server of TVM's RPC, with the packages of these tests."""
    packages = f"{SOURCE}/{PACKAGES.relative_to(REPOSITORY)}"
    server = f"-P {SOURCE}/gsaas/gpu_host/servers/tvm.py"
    settings = f"environment = PYTHONPATH:{packages}\n"
    return Middleware("tvm", server, "TVM_RPC_SERVER_0", settings)


def ggml_rpc() -> Middleware:
    """ggml's own server."""
    libraries = ggml.built() / "ggml/lib"
    server = (
        f"{SOURCE}/gsaas/gpu_host/servers/ggml.py --threads 1 "
        f"--libraries {SOURCE}/{libraries.relative_to(REPOSITORY)}"
    )
    return Middleware("ggml", server, "LLAMA_ARG_RPC", libraries=str(libraries))


@pytest.fixture(scope="module")
def bus(machine: GpuMachine) -> Iterator[str]:
    """The URL of a message bus in the network of the machine, in which the rest of the module runs, too."""
    with machine.network(), RabbitMQ() as broker:
        yield broker.url


class Host:
    """A GPU host whose daemons are those of one middleware."""

    def __init__(self, cpus: CpuHost, middleware: Middleware) -> None:
        self.cpus = cpus
        self.machine = cpus.machine
        self.middleware = middleware

    def compute(self, daemon: Daemon) -> subprocess.Popen[str]:
        """Have a program compute on a cGPU until `result`; it has begun."""
        program = self.begin(daemon)
        assert "computing" in program.stdout.readline()
        return program

    def begin(self, daemon: Daemon) -> subprocess.Popen[str]:
        environment = {
            self.middleware.variable: f"127.0.0.1:{daemon.port}",
            "LD_LIBRARY_PATH": self.middleware.libraries,
        }
        module = f"gsaas.prove.clients.{self.middleware.driver}"
        return self.cpus.begin(environment, "-m", module, "compute")

    def have_run(self, daemon: Daemon, command: str) -> str:
        """Have a daemon of TVM run a command of the shell; return what that said, empty if its client was cut off."""
        address = f"127.0.0.1:{daemon.port}"
        program = self.cpus.begin({}, TVM_COMMAND, address, command)
        return program.communicate()[0].strip()

    def result(self, program: subprocess.Popen[str]) -> dict[str, Any]:
        """End a program that computes, after one more product; return what it tells."""
        program.send_signal(signal.SIGTERM)
        return self.cpus.results(program)[-1]

    def serves(self, daemon: Daemon) -> bool:
        """Return whether a new program computes on a cGPU, and right."""
        program = self.begin(daemon)
        begun = "computing" in program.stdout.readline()
        if begun:
            program.send_signal(signal.SIGTERM)
        # An attack may have left a daemon that fails only now; then the program's library ends it.
        told = self.cpus.results(program)
        return begun and bool(told) and told[-1].get("failed") == []


@pytest.fixture(scope="module", params=[tvm_rpc, ggml_rpc], ids=["tvm", "ggml"])
def host(request, machine, bus) -> Iterator[Host]:
    if len(os.sched_getaffinity(0)) < DEVICES:
        pytest.skip(f"{DEVICES} devices need as many processors")
    middleware = request.param()
    with cpu_host.engine_of(machine, "gpu1", bus) as cpus:
        machine.configure(
            CONFIGURATION.format(
                bus=bus,
                secret=SECRET,
                driver=middleware.driver,
                command=middleware.command,
            )
            + middleware.settings
        )
        machine.type("systemctl start gsaas-monitor")
        try:
            cpus.await_report()
            yield Host(cpus, middleware)
        finally:
            machine.type(
                "systemctl stop gsaas-monitor; /opt/gsaas/bin/gsaas-monitor "
                "--config-file /etc/gsaas/gsaas-monitor.conf --clean"
            )


class Attack:
    """The lease that attacks, its neighbour, and a third lease."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.random = random.Random()  # noqa: S311 - each attack seeds it, to be the same in every run
        (self.mine,), (self.neighbour,) = (host.cpus.lease(port, 1) for port in (MINE, NEIGHBOUR))
        self.other = host.cpus.lease(OTHER)[1]
        host.cpus.have(self.mine, self.neighbour, self.other)
        self.session = self._recorded()
        self.computing = host.compute(self.neighbour)
        self.before = self._others()
        host.machine.type(f"touch {MARK}")

    def send(self, data: bytes) -> None:
        """Send this on a new connection to the own daemon, which is closed when all is sent."""
        with suppress(OSError), self.connected() as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass

    def connected(self) -> socket.socket:
        """Return a new connection; waits until the daemon is started again, if an attack has crashed it."""

        def attempt() -> socket.socket | None:
            with suppress(ConnectionError):
                return socket.create_connection(("127.0.0.1", MINE), PATIENCE)
            return None

        return until(attempt, "the own daemon to accept a connection")

    def has_harmed_nobody(self) -> None:
        """Check that nobody else has noticed, and that the own daemon serves again."""
        self.serves()
        assert self.computing.poll() is None, self.computing.communicate()
        assert self._others() == self.before, "another daemon, or the monitor, was started again"

    def has_gained_nothing(self) -> None:
        """Check, after all attacks, what the neighbour has computed meanwhile, and that no file is left anywhere."""
        result = self.host.result(self.computing)
        assert result["failed"] == []
        assert result["rounds"] > len(ATTACKS)
        assert self.host.serves(self.other)
        uid = self.host.machine.show(unit.name(self.mine.key), "UID")
        assert uid.isdigit()
        # The daemon's own temporary files are a file system of their own.
        written = self.host.machine.written
        find = ("find", written, "-newer", f"{written}{MARK}")
        gained = subprocess.run(
            [*find, "(", "-uid", uid, "-o", "-name", "gained*", ")"],
            check=True,
            capture_output=True,
            text=True,
        )
        assert gained.stdout == ""

    def serves(self) -> None:
        """Wait until a new program computes at the own address."""
        until(lambda: self.host.serves(self.mine), "the own daemon to serve again")

    def _others(self) -> dict[str, str]:
        names = ["gsaas-monitor", unit.name(self.neighbour.key), unit.name(self.other.key)]
        pids = self.host.machine.show(" ".join(names), "MainPID").split()
        return dict(zip(names, pids, strict=True))

    def _recorded(self) -> bytes:
        """Return what a client sends that multiplies a few times."""
        with recording(MINE) as (port, sent):
            program = self.host.compute(Daemon(self.mine.gpu_uuid, port))
            assert self.host.result(program)["failed"] == []
        assert len(sent) > MATRIX, "what was recorded computes"
        return bytes(sent)


@contextmanager
def recording(port: int) -> Iterator[tuple[int, bytearray]]:
    """Forward to *port*; yields the port to use instead, and what a client sends on its last connection."""
    sent = bytearray()

    def forward(source: socket.socket, target: socket.socket, kept: bytearray) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                kept += data
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                sent.clear()
                with client, socket.create_connection(("127.0.0.1", port)) as server:
                    back = threading.Thread(target=forward, args=(server, client, bytearray()))
                    back.start()
                    forward(client, server, sent)
                    back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], sent
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture(scope="module")
def attack(host: Host) -> Iterator[Attack]:
    attack = Attack(host)
    yield attack
    attack.has_gained_nothing()
    host.cpus.reset()


@pytest.fixture(autouse=True)
def harmless(attack: Attack) -> Iterator[None]:
    """After each attack, everybody else computes as before."""
    yield
    attack.has_harmed_nobody()


def random_bytes(attack: Attack) -> None:
    for _ in range(30):
        attack.send(attack.random.randbytes(attack.random.randrange(1, 1 << 16)))


def truncated(attack: Attack) -> None:
    """A session that ends in the middle of a message, at any point of its beginning and of the rest."""
    for end in (1024, len(attack.session)):
        for _ in range(15):
            attack.send(attack.session[: attack.random.randrange(1, end)])


def wrong_lengths(attack: Attack) -> None:
    """Numbers of eight and four bytes that are far too large, or zero, anywhere in the beginning of a session."""
    for _ in range(30):
        session = bytearray(attack.session)
        length, position = attack.random.choice(LENGTHS), attack.random.randrange(512)
        number = struct.pack("<Q", length)[: attack.random.choice((4, 8))]
        session[position : position + len(number)] = number
        attack.send(bytes(session))


def changed_bytes(attack: Attack) -> None:
    for _ in range(30):
        session = bytearray(attack.session)
        for _ in range(attack.random.randrange(1, 16)):
            session[attack.random.randrange(len(session))] = attack.random.randrange(256)
        attack.send(bytes(session))


def shuffled(attack: Attack) -> None:
    """Pieces of a session in another order, some of them twice, after its first message."""
    for _ in range(15):
        start = attack.random.randrange(16, 256)
        rest = attack.session[start:]
        size = attack.random.randrange(64, 8192)
        pieces = [rest[at : at + size] for at in range(0, len(rest), size)]
        attack.send(
            attack.session[:start] + b"".join(attack.random.choices(pieces, k=2 * len(pieces)))
        )


def oversized(attack: Attack) -> None:
    """A session that goes on with many MiB."""
    for _ in range(3):
        attack.send(attack.session + attack.random.randbytes(48 << 20))


def flood(attack: Attack) -> None:
    """Many sessions whose client takes no answer and vanishes with a reset."""
    for _ in range(40):
        with suppress(OSError), attack.connected() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(attack.session[: attack.random.randrange(len(attack.session))])


def one_session_without_end(attack: Attack) -> None:
    """A session that asks for the same again and again, and takes no answer."""
    with suppress(OSError), attack.connected() as connection:
        connection.settimeout(2)
        for _ in range(500):
            connection.sendall(attack.session)


ATTACKS: list[Callable[[Attack], None]] = [
    *(random_bytes, truncated, wrong_lengths, changed_bytes, shuffled, oversized, flood),
    one_session_without_end,
]


@pytest.mark.parametrize("how", ATTACKS, ids=lambda how: how.__name__)
def test_an_attack_crashes_its_own_daemon_at_most(attack, how):
    attack.random.seed(f"{SEED} {how.__name__}")
    how(attack)


def test_half_open_connections_keep_nobody_else_waiting(attack):
    """A daemon serves one connection after the other: the own one is busy while they are open."""
    with ExitStack() as stack:
        for number in range(64):
            with suppress(OSError):
                connection = stack.enter_context(socket.socket())
                connection.setblocking(False)
                connection.connect_ex(("127.0.0.1", MINE))
                if number == 0:
                    until(lambda c=connection: _sent(c, attack.session[:3]), "the first to be open")
        assert attack.host.serves(attack.other)
        assert attack.computing.poll() is None


def _sent(connection: socket.socket, data: bytes) -> bool:
    with suppress(OSError):
        return connection.send(data) > 0
    return False


def test_clients_that_are_killed_while_they_compute_cost_nobody_else_anything(attack):
    for _ in range(5):
        program = attack.host.begin(attack.mine)
        program.stdout.readline()
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


COMMAND = f"""
id -u
touch /tmp/own && echo wrote /tmp
cat /etc/gsaas/gsaas-monitor.conf
for folder in /etc /etc/gsaas /opt /usr/local /run /var/lib /root /home; do
    touch $folder/gained && echo wrote $folder
done
for port in {NEIGHBOUR} {OTHER + 1}; do
    bash -c "</dev/tcp/127.0.0.1/$port" && echo reached $port
done
echo end
"""


def test_code_in_a_daemon_reaches_no_file_no_process_and_no_other_daemon(attack):
    """TVM's daemons run what their clients send; ggml's protocol has nothing of the kind."""
    if attack.host.middleware.driver != "tvm":
        pytest.skip("its protocol carries no code")
    said = attack.host.have_run(attack.mine, COMMAND)
    uid = attack.host.machine.show(unit.name(attack.mine.key), "UID")
    assert uid.isdigit()
    assert uid != "0"
    lines = said.splitlines()
    assert (lines[0], lines[-1]) == (uid, "end"), said
    done = [line for line in lines if line.startswith(("wrote", "reached"))]
    assert done == ["wrote /tmp"]
    assert SECRET not in said
    # Every process that it may signal: its own.
    attack.host.have_run(attack.mine, "kill -9 -1")
