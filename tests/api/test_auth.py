# SPDX-License-Identifier: Apache-2.0
"""The token file: its entries, and who may read it."""

from __future__ import annotations

import json

import pytest
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from gsaas import exceptions
from gsaas.api.auth import TokenFile, TokenFileError

ENTRY = {"token": "correct-horse-battery", "user_id": "u", "project_id": "p", "roles": ["member"]}


def write(folder, entries, mode=0o600):
    path = folder / "tokens.json"
    path.write_text(entries if isinstance(entries, str) else json.dumps(entries), encoding="utf-8")
    path.chmod(mode)
    return path


def request(token):
    headers = {} if token is None else {"X-Auth-Token": token}
    return Request(EnvironBuilder(headers=headers).get_environ())


def test_a_token_makes_its_callers_context(tmp_path):
    other = ENTRY | {"token": "another-long-token", "user_id": "v", "roles": ["admin", "reader"]}
    authenticate = TokenFile(write(tmp_path, [ENTRY, other]))
    first, second = authenticate(request(ENTRY["token"])), authenticate(request(other["token"]))
    assert (first.user_id, first.project_id, first.roles) == ("u", "p", ["member"])
    assert (second.user_id, second.project_id, second.roles) == ("v", "p", ["admin", "reader"])


@pytest.mark.parametrize(
    "token",
    [None, "", "correct", ENTRY["token"] + "x", ENTRY["token"][:-1], "é" * 20, "\udcff" * 20],
)
def test_any_other_token_is_unauthorized(tmp_path, token):
    authenticate = TokenFile(write(tmp_path, [ENTRY]))
    with pytest.raises(exceptions.Unauthorized, match="X-Auth-Token"):
        authenticate(request(token))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610, 0o644, 0o666])
def test_a_file_that_other_users_may_access_is_refused_with_the_remedy(tmp_path, mode):
    path = write(tmp_path, [ENTRY], mode)
    with pytest.raises(TokenFileError, match=f"chmod 0600 {path}"):
        TokenFile(path)


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_that_is_its_owners_alone_is_read(tmp_path, mode):
    TokenFile(write(tmp_path, [ENTRY], mode))


@pytest.mark.parametrize(
    "entries",
    [
        "no JSON",
        {},
        [ENTRY | {"token": "short"}],
        [ENTRY | {"token": 7}],
        [ENTRY | {"role": "x"}],
        [{key: ENTRY[key] for key in ("token", "user_id", "roles")}],
        [ENTRY | {"roles": "admin"}],
        [ENTRY, None],
    ],
    ids=repr,
)
def test_a_file_that_makes_no_sense_is_refused_without_showing_its_tokens(tmp_path, entries):
    path = write(tmp_path, entries)
    with pytest.raises(TokenFileError) as refusal:
        TokenFile(path)
    assert str(path) in str(refusal.value)
    assert ENTRY["token"] not in str(refusal.value)


def test_what_is_kept_in_memory_is_not_the_token(tmp_path):
    assert ENTRY["token"] not in repr(vars(TokenFile(write(tmp_path, [ENTRY]))))
