# SPDX-License-Identifier: Apache-2.0
"""The test bed as a whole: it is brought up once, and GSaaS is in it as it ships."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from typing import Any

import pytest

from tests.openstack import cli
from tests.openstack.bed import accounts, gsaas, machines, messages, settings

pytestmark = [
    pytest.mark.openstack,
    pytest.mark.timeout(1800),
]


def test_bringing_up_what_is_up_starts_nothing(cloud: None):
    before = _status()
    cli.bed("up", f"--for={os.getpid()}")
    after = _status()
    assert after["state"] == "up"
    assert _pids(after) == _pids(before)
    assert None not in _pids(after)


def test_every_host_has_an_account_on_the_message_bus_and_is_believed(cloud: None):
    """What ships is what is tested: messages are signed, and permissions those of `gsaas-manage bus permissions`."""
    hosts = {*gsaas.GPUS, *gsaas.COMPUTE_HOSTS, machines.CPU_HOST}
    control = [*messages.CONTROL, "--quiet", "--formatter=json"]
    rows = subprocess.check_output([*control, "list_connections", "user", "vhost"], text=True)
    users = {row["user"] for row in json.loads(rows) if row["vhost"] == accounts.VIRTUAL_HOST}
    assert users == {"gsaas", *(f"gsaas-{host}" for host in hosts)}
    shipped = subprocess.check_output(
        [gsaas.program("gsaas-manage"), "bus", "permissions", settings.REAL_HOST]
        + ["--role=compute", "--role=gpu"],
        text=True,
    )
    listed = [*control, "list_user_permissions", f"gsaas-{settings.REAL_HOST}"]
    (allowed,) = json.loads(subprocess.check_output(listed, text=True))
    expected = shlex.split(shipped.splitlines()[0])[-3:]
    assert [allowed[kind] for kind in ("configure", "write", "read")] == expected
    for daemon in (*gsaas.ENGINES, *gsaas.MONITORS, *gsaas.ENDPOINTS):
        assert "not believed" not in daemon.log.read_text()


def _status() -> dict[str, Any]:
    return json.loads(cli.bed("status", "--json"))


def _pids(status: dict[str, Any]) -> list[int | None]:
    return [daemon["pid"] for daemon in status["daemons"]]
