# SPDX-License-Identifier: Apache-2.0
"""A door in front of the real Nova that can be told to misbehave, as networks and busy services do."""

from __future__ import annotations

import http.client
import re
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.openstack.bed import settings

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@dataclass
class Fault:
    """What happens to requests whose line (`POST /v2.1/servers`) matches."""

    line: str
    status: int | None = None
    """Answered instead of Nova."""
    silent: threading.Event | None = None
    """Nobody answers until it is set; and then the request is forwarded, whoever still waits."""
    lost: bool = False
    """Nova is asked, and its answer is lost."""
    hidden: tuple[str, ...] = ()
    """Headers that do not reach Nova."""
    rewritten: Callable[[bytes], bytes] | None = None
    """Returns what becomes of the body of Nova's answer."""
    seen: int = 0


class NovaProxy:
    """Listens on a port of its own, with TLS if it has a certificate; forwards everything unless told otherwise."""

    def __init__(self, certificate: tuple[str, str] | None = None) -> None:
        self.faults: list[Fault] = []
        self._server = ThreadingHTTPServer((settings.ADDRESS, 0), _handler(self))
        self._server.daemon_threads = True
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://{settings.ADDRESS}:{self._server.server_port}/v2.1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        for fault in self.faults:
            if fault.silent:
                fault.silent.set()
        self._server.shutdown()
        self._server.server_close()

    def fault(self, line: str, **what: object) -> Fault:
        """Have requests that match misbehave from now on, until `mend`."""
        self.faults.append(Fault(line, **what))
        return self.faults[-1]

    def mend(self) -> None:
        self.faults.clear()

    def match(self, line: str) -> Fault | None:
        return next((fault for fault in self.faults if re.fullmatch(fault.line, line)), None)


def _handler(proxy: NovaProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            line = f"{self.command} {self.path.partition('?')[0]}"
            fault = proxy.match(line)
            hidden: tuple[str, ...] = ()
            if fault is not None:
                fault.seen += 1
                hidden = fault.hidden
                if fault.status is not None:
                    self.send_error(fault.status)
                    return
                if fault.silent is not None:
                    fault.silent.wait()
            answer, content = self._forward(body, hidden)
            if fault is not None and (fault.lost or fault.silent):
                self.close_connection = True
                return
            if fault is not None and fault.rewritten is not None:
                content = fault.rewritten(content)
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _forward(
            self, body: bytes, hidden: tuple[str, ...]
        ) -> tuple[http.client.HTTPResponse, bytes]:
            nova = http.client.HTTPConnection(settings.ADDRESS, settings.NOVA_PORT, timeout=120)
            headers = {
                name: value
                for name, value in self.headers.items()
                if name.lower() not in HOP_BY_HOP and name not in hidden
            }
            nova.request(self.command, self.path, body or None, headers)
            answer = nova.getresponse()
            try:
                return answer, answer.read()
            finally:
                nova.close()

        def log_message(self, *_arguments: object) -> None:
            """The tests' output is for tests."""

    handle: Callable[..., None] = Handler.handle_any
    for method in ("GET", "POST", "PUT", "DELETE"):
        setattr(Handler, f"do_{method}", handle)
    return Handler
