# SPDX-License-Identifier: Apache-2.0
"""A very small Keystone on loopback: enough of version 3 for a service that checks tokens."""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from tests.support.waiting import PATIENCE

SERVICE_USER = "gsaas"
PASSWORD = "secret"


class Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        pass


class Keystone:
    """Knows the tokens that a test gives out, and counts how often it is asked."""

    def __init__(self) -> None:
        self.url = ""
        self.refusal = "The request you have made requires authentication."
        self.away = False
        """Answers 503 to everything."""
        self.may_answer = threading.Event()
        """While it is not set, tokens are checked and nothing is answered."""
        self.may_answer.set()
        self.checked: list[str] = []
        """Tokens that were checked, in order."""
        self.endpoints: list[dict[str, str]] = []
        """What the catalogue has beside itself: type, interface, region and url of each."""
        self.sign_ins: list[str] = []
        """Users that signed in, in order; the service's own is not among them."""
        self._users: dict[str, tuple[str, list[str]]] = {}
        self._tokens: dict[str, dict[str, Any]] = {}
        self.give_out("token-of-the-service", roles=["service"], project="service")
        self.enrol(SERVICE_USER, PASSWORD, ["token-of-the-service"])

    def give_out(
        self,
        token: str,
        *,
        roles: list[str],
        project: str | None = "blue",
        lives: float = 3600,
        **more: Any,
    ) -> None:
        """Make *token* valid for *lives* seconds, perhaps less than none; *more* is in its body."""
        now = datetime.datetime.now(datetime.UTC)
        body: dict[str, Any] = {
            "methods": ["password"],
            "user": {"id": f"user-of-{token}", "name": "u", "domain": {"id": "d", "name": "D"}},
            "issued_at": now.isoformat().replace("+00:00", "Z"),
            "expires_at": (now + datetime.timedelta(seconds=lives))
            .isoformat()
            .replace("+00:00", "Z"),
            "roles": [{"id": role, "name": role} for role in roles],
        }
        if project is not None:
            body["project"] = {"id": project, "name": project, "domain": {"id": "d", "name": "D"}}
        self._tokens[token] = {"token": body | more}

    def enrol(self, user: str, password: str, tokens: list[str]) -> None:
        """Let *user* sign in: each time with the next of *tokens*, and again with the last.

        A user may be an application credential, whose secret is the password.
        """
        self._users[user] = password, list(tokens)

    def revoke(self, token: str) -> None:
        del self._tokens[token]

    def _catalog(self) -> list[dict[str, Any]]:
        own = {"type": "identity", "interface": "internal", "region": "R", "url": self.url}
        services: dict[str, list[dict[str, str]]] = {"gpu-scheduling": []}
        for number, endpoint in enumerate([own, *self.endpoints]):
            where = {key: endpoint[key] for key in ("interface", "region", "url")}
            listed = services.setdefault(endpoint["type"], [])
            listed.append(where | {"id": str(number), "region_id": endpoint["region"]})
        return [
            {"type": kind, "name": kind, "id": kind, "endpoints": listed}
            for kind, listed in services.items()
        ]

    def _body(self, token: str) -> dict[str, Any]:
        return {"token": self._tokens[token]["token"] | {"catalog": self._catalog()}}

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        request = Request(environ)
        return self._answer(request)(environ, start_response)

    def _answer(self, request: Request) -> Response:
        if self.away:
            return Response("down for maintenance", status=503)
        match request.method, request.path.rstrip("/"):
            case "GET", "/v3":
                version = {
                    "id": "v3.14",
                    "status": "stable",
                    "links": [{"rel": "self", "href": f"{self.url}/"}],
                    "media-types": [],
                }
                return _json({"version": version})
            case "POST", "/v3/auth/tokens":
                return self._sign_in(request.get_json()["auth"]["identity"])
            case "GET", "/v3/auth/tokens":
                token = request.headers["X-Subject-Token"]
                self.checked.append(token)
                self.may_answer.wait(PATIENCE)
                if self.away:
                    return Response("down for maintenance", status=503)
                if token not in self._tokens:
                    return _json({"error": {"code": 404, "message": "no such token"}}, 404)
                return _json(self._body(token))
        return _json({"error": {"code": 404, "message": request.path}}, 404)

    def _sign_in(self, identity: dict[str, Any]) -> Response:
        if "application_credential" in identity:
            credential = identity["application_credential"]
            user, password = credential["id"], credential["secret"]
        else:
            credential = identity["password"]["user"]
            user, password = credential["name"], credential["password"]
        known, tokens = self._users.get(user, (None, []))
        if password != known:
            message = self.refusal
            return _json({"error": {"code": 401, "title": "Unauthorized", "message": message}}, 401)
        if user != SERVICE_USER:
            self.sign_ins.append(user)
        token = tokens.pop(0) if len(tokens) > 1 else tokens[0]
        return _json(self._body(token), 201, {"X-Subject-Token": token})


def _json(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(body), status, headers, content_type="application/json")


@contextmanager
def running(certificate: tuple[str, str] | None = None) -> Iterator[Keystone]:
    """A Keystone that answers while the block runs; with the files of a certificate, over TLS."""
    keystone = Keystone()
    server = make_server(
        *("127.0.0.1", 0, keystone),
        threaded=True,
        request_handler=Quiet,
        ssl_context=certificate,
    )
    scheme = "https" if certificate else "http"
    keystone.url = f"{scheme}://127.0.0.1:{server.port}/v3"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield keystone
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
