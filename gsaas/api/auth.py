"""Who is calling? The part of the API that turns a token into a `RequestContext`.

An authenticator is any callable that takes the Flask request and returns the caller's
`RequestContext`, or raises `Unauthorized`. The one here reads a file and needs no Keystone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
from pathlib import Path

import flask
import jsonschema
from oslo_middleware import request_id as ids

from gsaas import exceptions
from gsaas.context import RequestContext

HEADER = "X-Auth-Token"
ENTRIES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "token": {"type": "string", "minLength": 16},
            "user_id": {"type": "string", "minLength": 1, "maxLength": 255},
            "project_id": {"type": "string", "minLength": 1, "maxLength": 255},
            "roles": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["token", "user_id", "project_id", "roles"],
        "additionalProperties": False,
    },
}


class TokenFileError(Exception):
    """The token file cannot be used; the message says which, why, and what to do."""


class TokenFile:
    """An authenticator for machines without Keystone.

    The file is a JSON list of `{"token", "user_id", "project_id", "roles"}` and is read once. Only
    digests of the tokens stay in memory, and every one of them is compared with the caller's in
    constant time, so that neither a dump nor a stopwatch tells what a valid token looks like.
    """

    def __init__(self, path: str | Path) -> None:
        """Read *path*; raises `TokenFileError` if others may read it too, or it makes no sense."""
        self._callers = [
            (
                _digest(entry["token"]),
                {key: entry[key] for key in ("user_id", "project_id", "roles")},
            )
            for entry in _read(Path(path))
        ]

    def __call__(self, request: flask.Request) -> RequestContext:
        """Return the caller's context; raises `Unauthorized`."""
        token = request.headers.get(HEADER)
        if token is None:
            raise exceptions.Unauthorized(reason=f"this needs a token in the header {HEADER}")
        digest = _digest(token)
        caller = None
        for known, description in self._callers:
            if hmac.compare_digest(known, digest):
                caller = description
        if caller is None:
            raise exceptions.Unauthorized(reason=f"the token in {HEADER} is not valid")
        return RequestContext.of(
            **caller,
            request_id=request.environ.get(ids.ENV_REQUEST_ID),
            global_request_id=request.environ.get(ids.GLOBAL_REQ_ID),
        )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _read(path: Path) -> list[dict]:
    with path.open(encoding="utf-8") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise TokenFileError(
                f"{path} holds tokens and its mode {mode:04o} lets others at them: "
                f"chmod 0600 {path}"
            )
        text = file.read()
    try:
        entries = json.loads(text)
        jsonschema.validate(entries, ENTRIES)
    except ValueError as error:
        raise TokenFileError(f"{path} is not JSON: {error}") from None
    except jsonschema.ValidationError as error:
        # The library's own sentence would quote the entry, and with it the token.
        where = "/".join(map(str, error.absolute_path)) or "the whole file"
        raise TokenFileError(
            f"{path}: {where} is not as it must be ({error.validator}); the file is a list of "
            '{"token": at least 16 characters, "user_id", "project_id", "roles": [...]}'
        ) from None
    return entries
