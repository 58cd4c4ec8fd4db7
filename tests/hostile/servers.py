# SPDX-License-Identifier: Apache-2.0
"""The API under each of its servers, as operators run it: uWSGI behind HAProxy, gunicorn, and gsaas-standalone."""

from __future__ import annotations

import http.client
import json
import os
import re
import shlex
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.api.test_deployment import SETTINGS, make_database, sqlite_in
from tests.api.world import token, write_tokens
from tests.kernel.standalone.cloud import Cloud
from tests.support import certificates
from tests.support.ports import free_ports
from tests.support.waiting import PATIENCE, until

REPOSITORY = Path(__file__).parents[2]
SHIPPED = REPOSITORY / "etc" / "gsaas"
GUIDE = REPOSITORY / "doc" / "operator-guide.md"
KINDS = ("haproxy", "gunicorn", "standalone")
"""What a client reaches. `uwsgi` is what is behind HAProxy, which only a program of the same controller reaches."""
SECURITY_EVENTS = """
[oslo_messaging_notifications]
driver = log
[notifications]
audit = true
audit_per_source = 3
"""
NEVER_SILENT = """
[gpgpums]
heartbeat_timeout = 86400
[grants]
direct = always
"""


@dataclass(frozen=True)
class Answer:
    """What a server answers to one request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of its only error."""
        (error,) = self.json["errors"]
        assert error["status"] == self.status
        return error["code"]


@dataclass(frozen=True)
class Server:
    """One server that listens at *port* of loopback, with TLS if there is a *certificate*, which is to be trusted."""

    kind: str
    port: int
    log: Path
    token: Callable[[str], str]
    """Returns the token of `admin` or `member`."""
    certificate: str | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self.certificate else ''}://127.0.0.1:{self.port}"

    @cached_property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.certificate)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """Return a connection from the address *source*."""
        plain = socket.create_connection(
            ("127.0.0.1", self.port), timeout=PATIENCE, source_address=(source, 0)
        )
        if self.certificate is None:
            return plain
        return self.context.wrap_socket(plain, server_hostname="127.0.0.1")

    def send(self, request: bytes) -> bytes:
        """Send bytes, and return everything that the server sends until it closes or resets the connection."""
        answer = b""
        with suppress(ConnectionError, ssl.SSLError), self.connect() as connection:
            connection.sendall(request)
            while received := connection.recv(65536):
                answer += received
        return answer

    def ask(
        self,
        method: str,
        path: str,
        caller: str | None = None,
        body: Any = None,
        headers: Iterable[tuple[str, str]] = (),
        source: str = "127.0.0.1",
    ) -> Answer:
        """Send one request as http.client does, and return its answer.

        *body* is JSON data, or bytes; an iterator of bytes is sent in chunks.
        """
        given = list(headers)
        if "Host" not in dict(given):
            given.append(("Host", f"127.0.0.1:{self.port}"))
        if caller is not None:
            given.append(("X-Auth-Token", self.token(caller)))
        if body is not None:
            given.append(("Content-Type", "application/json"))
            if not isinstance(body, bytes | Iterator):
                body = json.dumps(body).encode()
            is_bytes = isinstance(body, bytes)
            given.append(
                ("Content-Length", str(len(body))) if is_bytes else ("Transfer-Encoding", "chunked")
            )
        with closing(http.client.HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.sock = self.connect(source)
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in given:
                connection.putheader(name, value)
            connection.endheaders(body, encode_chunked=isinstance(body, Iterator))
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def refused_addresses(self) -> list[str]:
        """Return the addresses in the security events that the server has logged; gsaas-standalone logs none."""
        events = re.findall(r'\{.*"event_type": "audit\.gsaas.*', self.log.read_text())
        payloads = [json.loads(event)["payload"] for event in events]
        return [payload["initiator"]["host"]["address"] for payload in payloads]


def listens(server: Server, process: subprocess.Popen[Any]) -> Server:
    """Return *server* once it answers; fail if *process* has ended."""

    def healthy() -> bool:
        assert process.poll() is None, server.log.read_text()
        try:
            return server.ask("GET", "/healthcheck").status == 200
        except OSError:
            return False

    until(healthy, lambda: f"{server.kind}: {server.log.read_text()}")
    return server


@contextmanager
def running(command: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[Any]]:
    """Run a server, which ends with the tests, however these end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "--", *command],
            env=os.environ | environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def configured(folder: Path) -> str:
    """Make a database and a configuration of the API in *folder*; return the name of its file."""
    make_database(folder)
    write_tokens(folder / "tokens.json")
    settings = SETTINGS.format(folder=folder, strategy="token-file", connection=sqlite_in(folder))
    conf = folder / "gsaas.conf"
    conf.write_text(settings + SECURITY_EVENTS + NEVER_SILENT)
    return str(conf)


def changed(text: str, *changes: tuple[str, str]) -> str:
    """Return a shipped *text* with what is different on this machine; each of the *changes* must apply."""
    for shipped, here in changes:
        assert text.count(shipped) == 1, shipped
        text = text.replace(shipped, here)
    return text


@contextmanager
def uwsgi(folder: Path) -> Iterator[Server]:
    """Run the API under Debian's uWSGI with the shipped configuration, in one process instead of four."""
    (port,) = free_ports(1)
    ini = folder / "gsaas-api-uwsgi.ini"
    ini.write_text(
        changed(
            (SHIPPED / ini.name).read_text(),
            ("127.0.0.1:9870", f"127.0.0.1:{port}"),
            ("virtualenv = /opt/gsaas", f"virtualenv = {sys.prefix}"),
            ("processes = 4", "processes = 1"),
        )
    )
    command = ["uwsgi", "--plugin", "python3", "--ini", str(ini)]
    server = Server("uwsgi", port, folder / "log", token)
    with running(command, server.log, GSAAS_CONFIG_FILES=configured(folder)) as process:
        yield listens(server, process)


@contextmanager
def haproxy(folder: Path, behind: Server) -> Iterator[Server]:
    """Run HAProxy with the shipped configuration in front of *behind*."""
    (port,) = free_ports(1)
    certificate, key = certificates.self_signed(folder)
    both = folder / "gsaas-api.pem"
    both.touch(mode=0o600)
    both.write_text(Path(certificate).read_text() + Path(key).read_text())
    settings = folder / "haproxy.cfg"
    settings.write_text(
        changed(
            (SHIPPED / settings.name).read_text(),
            ("bind :443 ", f"bind 127.0.0.1:{port} "),
            ("/etc/haproxy/gsaas-api.pem", str(both)),
            ("server controller1 127.0.0.1:9870", f"server controller1 127.0.0.1:{behind.port}"),
        )
    )
    server = Server("haproxy", port, behind.log, token, certificate)
    with running(["haproxy", "-db", "-f", str(settings)], folder / "haproxy.log") as process:
        yield listens(server, process)


@contextmanager
def gunicorn(folder: Path) -> Iterator[Server]:
    """Run the API under gunicorn with the command of the guide, in one worker."""
    (port,) = free_ports(1)
    (documented,) = re.findall(r"^ +(/opt/gsaas/bin/gunicorn .*)$", GUIDE.read_text(), re.MULTILINE)
    command = changed(
        documented,
        ("/opt/gsaas/bin", str(Path(sys.executable).parent)),
        ("127.0.0.1:9870", f"127.0.0.1:{port}"),
        ("--workers=4", "--workers=1"),
    )
    server = Server("gunicorn", port, folder / "log", token)
    conf = configured(folder)
    with running(shlex.split(command), server.log, GSAAS_CONFIG_FILES=conf) as process:
        yield listens(server, process)


@contextmanager
def standalone(folder: Path) -> Iterator[Server]:
    """Run gsaas-standalone, whose member is the user `demo`."""
    cloud = Cloud(folder)
    try:
        cloud.start()
        port = int(
            json.loads((cloud.state_dir / "credentials.json").read_text())["url"].rpartition(":")[2]
        )

        def credentials(caller: str) -> str:
            suffix = {"admin": "", "member": "-demo"}[caller]
            file = cloud.state_dir / f"credentials{suffix}.json"
            return json.loads(file.read_text())["token"]

        yield Server("standalone", port, cloud.log, credentials)
    finally:
        cloud.remove()
