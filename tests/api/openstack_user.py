# SPDX-License-Identifier: Apache-2.0
"""A user of a cloud with GSaaS, who uses openstacksdk and the command `openstack`, in the test's process.

The cloud is a small Keystone and the API on loopback.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import flask
import openstack
import pytest
from openstack.connection import Connection
from openstackclient import shell
from openstackclient.common import clientmanager

import gsaas.conf
from gsaas.api import microversions
from gsaas.api.keystone import Keystone
from gsaasclient import sdk
from tests.api.desk import BusyEngine
from tests.api.server import serving
from tests.api.test_keystone import SETTINGS
from tests.api.world import World
from tests.support import keystone as double

ROLES = {"member": ["member", "reader"], "admin": ["admin"], "stranger": ["member", "reader"]}
"""User -> roles. The project has the name of the user."""


class OpenStackUser:
    """Connects and types as one of `ROLES`."""

    def __init__(self, world: World, keystone: double.Keystone, url: str, capsys) -> None:
        self.world = world
        self.keystone = keystone
        self.url = url
        self.requests: list[tuple[str, str]] = []
        """Path and wanted microversion of each request that the API has answered."""
        self._capsys = capsys

    def note(self, answer: flask.Response) -> flask.Response:
        self.requests.append(
            (flask.request.path, flask.request.headers.get(microversions.HEADER, ""))
        )
        return answer

    def connect(self, user: str = "member", **more: Any) -> Connection:
        """A connection with `gpu_scheduling`."""
        connection = openstack.connect(user, **more)
        sdk.add_service(connection)
        return connection

    def type(self, *words: str, user: str = "member") -> tuple[int, str, str]:
        """Run `openstack` with *words*; return its exit status, output and error output."""
        self._capsys.readouterr()
        clientmanager.get_plugin_modules(
            "openstack.cli.extension"
        )  # forget the client of the last command
        with _logging_kept():
            status = shell.main(["--os-cloud", user, *words])
        output = self._capsys.readouterr()
        return status, output.out, output.err

    def do(self, *words: str, user: str = "member") -> str:
        """Run a command that must succeed, and return its output."""
        status, out, err = self.type(*words, user=user)
        assert status == 0, err
        return out

    def read(self, *words: str, user: str = "member") -> Any:
        """Run a command with `-f json`, which must succeed, and return its parsed output."""
        return json.loads(self.do(*words, "-f", "json", user=user))

    def refused(self, *words: str, user: str = "member") -> str:
        """Run a command that must fail, and return its error output."""
        status, out, err = self.type(*words, user=user)
        assert (status, out) == (1, ""), out + err
        assert "Traceback" not in err
        return err


@contextmanager
def _logging_kept() -> Iterator[None]:
    """The program adds handlers to the root logger, as it runs once in a process; they are gone after the block."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)


def write_clouds(path: Path, auth_url: str, **more: str) -> None:
    """Write a clouds.yaml with an entry for each user."""
    clouds = {
        user: {
            "auth": {
                "auth_url": auth_url,
                "username": user,
                "password": "secret",
                "project_name": user,
                "user_domain_name": "D",
                "project_domain_name": "D",
            },
            "region_name": "R",
            **more,
        }
        for user in ROLES
    }
    path.write_text(json.dumps({"clouds": clouds}))


@pytest.fixture
def user(tmp_path, capsys, monkeypatch):
    """A user of a cloud of two GPU hosts with four GPUs of 8192 MiB each, with an engine that works by itself."""
    for name in [name for name in os.environ if name.startswith(("OS_", "GSAAS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    with double.running() as keystone:
        path = tmp_path / "keystone.conf"
        path.write_text(SETTINGS.format(url=keystone.url), encoding="utf-8")
        authenticate = Keystone(gsaas.conf.load(files=[str(path)]))
        settings = "[api]\nmax_limit = 2\n"
        world = World.build(tmp_path, authenticate=authenticate, settings=settings)
        world.engine.__class__ = BusyEngine
        for name, roles in ROLES.items():
            keystone.give_out(f"token-of-{name}", roles=roles, project=name)
            keystone.enrol(name, "secret", [f"token-of-{name}"])
        write_clouds(tmp_path / "clouds.yaml", keystone.url)
        user = OpenStackUser(world, keystone, "", capsys)
        world.app.after_request(user.note)
        with serving(world.app) as user.url:
            endpoint = {
                "type": "gpu-scheduling",
                "interface": "public",
                "region": "R",
                "url": user.url,
            }
            keystone.endpoints.append(endpoint)
            yield user
        world.database.close()
