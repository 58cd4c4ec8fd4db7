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

SERVICE_USER = "gsaas"
PASSWORD = "secret"


class Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        pass


class Keystone:
    """Knows the tokens that a test gives out, and counts how often it is asked."""

    def __init__(self) -> None:
        self.url = ""
        self.away = False
        """Answers 503 to everything."""
        self.checked: list[str] = []
        """Tokens that were checked, in order."""
        self._tokens: dict[str, dict[str, Any]] = {}
        self.give_out("token-of-the-service", roles=["service"], project="service")

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

    def _catalog(self) -> list[dict[str, Any]]:
        endpoint = {"id": "e", "interface": "internal", "region": "R", "region_id": "R"}
        return [
            {"type": kind, "name": kind, "id": kind, "endpoints": [endpoint | {"url": self.url}]}
            for kind in ("identity", "gpu-scheduling")
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
                identity = request.get_json()["auth"]["identity"]["password"]["user"]
                if (identity["name"], identity["password"]) != (SERVICE_USER, PASSWORD):
                    return _json({"error": {"code": 401, "message": "no"}}, 401)
                body = self._body("token-of-the-service")
                return _json(body, 201, {"X-Subject-Token": "token-of-the-service"})
            case "GET", "/v3/auth/tokens":
                token = request.headers["X-Subject-Token"]
                self.checked.append(token)
                if token not in self._tokens:
                    return _json({"error": {"code": 404, "message": "no such token"}}, 404)
                return _json(self._body(token))
        return _json({"error": {"code": 404, "message": request.path}}, 404)


def _json(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(body), status, headers, content_type="application/json")


@contextmanager
def running() -> Iterator[Keystone]:
    """A Keystone that answers while the block runs."""
    keystone = Keystone()
    server = make_server("127.0.0.1", 0, keystone, threaded=True, request_handler=Quiet)
    keystone.url = f"http://127.0.0.1:{server.port}/v3"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield keystone
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
