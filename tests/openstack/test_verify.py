# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage verify` on a cloud in use, with the operator's own configuration: Nova is asked whether it is right."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from openstack.connection import Connection

from gsaas.cloud import server_tags
from tests.openstack.bed import gsaas, processes, settings
from tests.openstack.guest_client import run
from tests.openstack.servers import Servers

pytestmark = [
    pytest.mark.openstack,
    pytest.mark.alone,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("all_released", "taps"),
]

TENANT, NEIGHBOUR = settings.TENANTS
SHARE = ("-ncgpus=1", "-poolmem=512", "-mode=shared")
PLACE = (
    f"-image={settings.EMPTY_IMAGE}",
    f"-flavor={settings.FAKE_FLAVOR}",
    f"-network={settings.NETWORK}",
)


def verify(*words: str) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    """Return the exit status, 2 if somebody did not answer; and what differs, by kind and subject."""
    command = [gsaas.program("gsaas-manage"), "--config-file", gsaas.CONTROLLER]
    done = subprocess.run(
        [*command, "verify", "--format=json", "--settle=3", *words], capture_output=True, text=True
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)["differences"]
    return done.returncode, {(one["kind"], one["subject"]): one for one in found}


@contextmanager
def no_engine() -> Iterator[None]:
    """Have no engine run for a while: what happens then, nobody notices."""
    processes.end([processes.running(engine.name).pid for engine in gsaas.ENGINES])
    try:
        yield
    finally:
        for engine in gsaas.ENGINES:
            processes.ensure(engine)


@pytest.fixture
def neighbours(admin: Connection, connect: Callable[[str], Connection]) -> Iterator[Servers]:
    """Servers of another project."""
    servers = Servers(admin, connect(NEIGHBOUR))
    yield servers
    servers.delete()


def test_what_nobody_noticed_is_found_as_nova_says_and_repaired_and_nothing_else_is_touched(
    servers: Servers,
    neighbours: Servers,
    admin: Connection,
    await_lease: Callable[[str, str], None],
):
    gone, untagged = (run(TENANT, "-l", *SHARE, *PLACE) for _ in range(2))
    stray = servers.boot("stray", flavor=settings.FAKE_FLAVOR)
    other = neighbours.boot("other", flavor=settings.FAKE_FLAVOR)
    nobodys = server_tags.tag(str(uuid.uuid4()))
    verify("--repair")  # tests that were interrupted may have left servers in Nova
    await_that_nothing_differs()

    def tags(server_id: str) -> set[str]:
        return set(admin.compute.get_server(server_id).fetch_tags(admin.compute).tags)

    def as_nova_says() -> dict[tuple[str, str], bool]:
        """What should be printed, and whether Nova says that it is so now."""
        exists = admin.compute.find_server(gone["server"]["id"], all_projects=True) is not None
        own = server_tags.tag(untagged["id"])
        return {
            ("server-gone", f"lease {gone['id']}"): not exists,
            ("tag-lost", f"lease {untagged['id']}"): own not in tags(untagged["server"]["id"]),
            ("server-of-nobody", f"server {stray.id}"): nobodys in tags(stray.id),
        }

    assert set(as_nova_says().values()) == {False}
    of_neighbour = admin.compute.get_server(other.id).add_tag(admin.compute, "mine").to_dict()
    with no_engine():
        doomed = admin.compute.get_server(gone["server"]["id"])
        admin.compute.delete_server(doomed)
        admin.compute.wait_for_delete(doomed)
        equipped = admin.compute.get_server(untagged["server"]["id"])
        equipped.remove_tag(admin.compute, server_tags.tag(untagged["id"]))
        admin.compute.get_server(stray.id).add_tag(admin.compute, nobodys)
        launched = run(TENANT, "-l", *SHARE, *PLACE, "-nowait")

        status, found = verify()
        assert status == 1
        assert dict.fromkeys(found, True) == as_nova_says()
        assert {one["repaired"] for one in found.values()} == {False}

        status, repaired = verify("--repair")
        assert repaired.keys() == found.keys()
        assert {one["repaired"] for one in repaired.values()} == {True}
        assert status == 0
        # The end of a lease is an engine's work.
        assert [what for what, differs in as_nova_says().items() if differs] == [
            ("server-gone", f"lease {gone['id']}")
        ]
        assert tags(stray.id) == set()
    await_lease(gone["id"], "RELEASED")
    await_lease(launched["id"], "ACTIVE")
    await_that_nothing_differs()

    assert admin.compute.get_server(stray.id).status == "ACTIVE"
    assert tags(other.id) == {"mine"}
    now = admin.compute.get_server(other.id).to_dict()
    assert (now["status"], now["updated_at"]) == (
        of_neighbour["status"],
        of_neighbour["updated_at"],
    )
    for lease in (untagged, launched):
        assert run(TENANT, "-t", f"-id={lease['id']}")["status"] == "RELEASED"


def await_that_nothing_differs() -> None:
    """Tests before this one may leave daemons or bindings that end by themselves within seconds."""
    for _ in range(10):
        if (found := verify()) == (0, {}):
            return
    raise AssertionError(found)
