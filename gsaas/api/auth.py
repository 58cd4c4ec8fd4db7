# SPDX-License-Identifier: Apache-2.0
"""Authentication by a file of tokens, which needs no Keystone.

An authenticator is any callable that takes the Flask request and returns the caller's `RequestContext`, or raises
`Unauthorized`. The other one is `gsaas.api.keystone`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
from pathlib import Path
from typing import Any

import flask
import jsonschema
from oslo_middleware import request_id as ids

from gsaas import exceptions
from gsaas.context import RequestContext

HEADER = "X-Auth-Token"
SCHEMA = {
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
    """The token file cannot be used; the message names the file, the reason and the remedy."""


class TokenFile:
    """An authenticator for clouds without Keystone.

    The file is a JSON list of `{"token", "user_id", "project_id", "roles"}` and is read once. Only digests of the
    tokens are kept in memory, and each request's token is compared with all of them in constant time, so that neither
    a memory dump nor the response time reveals a valid token.
    """

    def __init__(self, path: str | Path) -> None:
        """Read *path*; raises `TokenFileError` if users other than its owner may read it, or its content is invalid."""
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
            raise exceptions.Unauthorized(
                reason=f"this request needs a token in the header {HEADER}"
            )
        digest = _digest(token)
        caller = None
        for known, attributes in self._callers:  # all of them, for constant time
            if hmac.compare_digest(known, digest):
                caller = attributes
        if caller is None:
            raise exceptions.Unauthorized(reason=f"the token in {HEADER} is not valid")
        return RequestContext.of(
            **caller,
            request_id=request.environ.get(ids.ENV_REQUEST_ID),
            global_request_id=request.environ.get(ids.GLOBAL_REQ_ID),
        )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _read(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise TokenFileError(
                f"{path} contains tokens, and its mode {mode:04o} lets other users read it: "
                f"chmod 0600 {path}"
            )
        text = file.read()
    try:
        entries: list[dict[str, Any]] = json.loads(text)
        jsonschema.validate(entries, SCHEMA)
    except ValueError as error:
        raise TokenFileError(f"{path} is not JSON: {error}") from None
    except jsonschema.ValidationError as error:
        # The library's own message would quote the entry and with it the token.
        where = "/".join(map(str, error.absolute_path)) or "the whole file"
        raise TokenFileError(
            f"{path}: {where} is invalid ({error.validator}); the file must be a list of "
            '{"token": at least 16 characters, "user_id", "project_id", "roles": [...]}'
        ) from None
    return entries
