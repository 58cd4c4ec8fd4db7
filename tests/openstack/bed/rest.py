# SPDX-License-Identifier: Apache-2.0
"""OpenStack's REST interfaces, as far as setting up a cloud asks for them.

    cloud = rest.cloud("admin", project="admin")
    project = cloud.ensure("identity", "projects", {"name": "tenant-a", "domain_id": "default"})

`ensure` looks by name first and creates what is missing; it never changes what is there.
"""

from __future__ import annotations

import functools
import http.client
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.openstack.bed import settings
from tests.openstack.bed.errors import BedError

PATIENCE = 180
COMPUTE_VERSION = "compute 2.90"

ROOTS = {
    "identity": (settings.KEYSTONE_PORT, "/v3"),
    "image": (settings.GLANCE_PORT, "/v2"),
    "compute": (settings.NOVA_PORT, "/v2.1"),
    "network": (settings.NEUTRON_PORT, "/v2.0"),
}
"""Where each service listens, and what its paths begin with."""


class Unanswered(BedError):
    """The service did not answer, or only in part: a busy one may drop a connection."""


Body = Mapping[str, Any] | Path | None


class Cloud:
    """The cloud as one user in one project sees it."""

    def __init__(self, user: str, project: str) -> None:
        self._user, self._project = user, project
        self._lock = threading.Lock()
        self._token: str | None = None

    def get(self, service: str, path: str, **query: str) -> Any:
        """The decoded answer to a GET."""
        asked = f"?{urlencode(query)}" if query else ""
        return self.call("GET", service, path + asked)

    def find(self, service: str, noun: str, **query: str) -> list[dict[str, Any]]:
        """All *noun* (plural, perhaps with a path before it) that *query* selects."""
        return self.get(service, noun, **query)[_key(noun)]

    def ensure(
        self, service: str, noun: str, wanted: Mapping[str, Any], *same: str, **query: str
    ) -> dict[str, Any]:
        """Return the *noun* that equals *wanted* in the fields *same* (its name); else make it.

        *query* narrows the search where the interface would otherwise not list all.
        """
        same = same or ("name",)
        for found in self.find(service, noun, **query):
            if all(found.get(field) == wanted[field] for field in same):
                return found
        key = _singular(_key(noun))
        body = wanted if service == "image" else {key: wanted}
        answer = self.call("POST", service, noun, body)
        return answer if service == "image" else answer[key]

    def call(self, method: str, service: str, path: str, body: Body = None) -> Any:
        """Send a request; return its decoded answer, or None when there is none.

        *body* is sent as JSON, or as it is when it is a file.
        """
        port, root = ROOTS[service]
        headers = {"X-Auth-Token": self.token(), "OpenStack-API-Version": COMPUTE_VERSION}
        send = functools.partial(_send, method, port, f"{root}/{path}", headers, body)
        try:
            return send()[0]
        except Unanswered:
            if method != "GET":
                raise
        return send()[0]

    def token(self) -> str:
        """A token of this user; asked for once."""
        with self._lock:
            if self._token is None:
                self._token = self._authenticate()
            return self._token

    def _authenticate(self) -> str:
        user = {
            "name": self._user,
            "domain": {"id": "default"},
            "password": settings.password(self._user),
        }
        body = {
            "auth": {
                "identity": {"methods": ["password"], "password": {"user": user}},
                "scope": {"project": {"name": self._project, "domain": {"id": "default"}}},
            }
        }
        _, headers = _send("POST", settings.KEYSTONE_PORT, "/v3/auth/tokens", {}, body)
        return headers["X-Subject-Token"]


@functools.cache
def cloud(user: str = "admin", project: str = "admin") -> Cloud:
    """The one `Cloud` of *user* in *project*."""
    return Cloud(user, project)


def answers(port: int) -> bool:
    """Whether a web service on *port* works, be it to say who may not use it."""
    connection = http.client.HTTPConnection(settings.ADDRESS, port, timeout=20)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _send(
    method: str, port: int, path: str, headers: Mapping[str, str], body: Body
) -> tuple[Any, Mapping[str, str]]:
    """Return the decoded answer and its headers; `BedError` if it is not one of success."""
    if isinstance(body, Path):
        size = str(body.stat().st_size)
        headers = {**headers, "Content-Type": "application/octet-stream", "Content-Length": size}
    elif body is not None:
        headers = {**headers, "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(settings.ADDRESS, port, timeout=PATIENCE)
    what = f"{method} on port {port} of {path}"
    try:
        if isinstance(body, Path):
            with body.open("rb") as content:
                connection.request(method, path, content, headers)
        else:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, headers)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unanswered(f"{what} failed: {error!r}") from error
    finally:
        connection.close()
    if answer.status >= 400:
        said = text.decode(errors="replace")
        raise BedError(f"{what} was answered with {answer.status}: {said}")
    return (json.loads(text) if text else None), answer.headers


def _key(noun: str) -> str:
    """The key that a list of *noun* comes under: the last word of its path, less its prefix."""
    return noun.rpartition("/")[2].removeprefix("os-").replace("-", "_")


def _singular(plural: str) -> str:
    return plural.removesuffix("s")
