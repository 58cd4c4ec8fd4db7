# SPDX-License-Identifier: Apache-2.0
"""What a member of a project, or anybody who reaches the API, tries against the service and other projects."""

from __future__ import annotations

import datetime
import gzip
import http.client
import json
import re
import tracemalloc
import unicodedata
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oslo_utils import timeutils

import gsaas.conf
from gsaas import exceptions
from gsaas.api import schemas
from gsaas.api.validation import Schema
from gsaas.cloud.nova import checks, requests
from gsaas.conf.grants import allows_direct
from gsaas.db import history, leases, models
from tests.api import server
from tests.api.world import World, only_error

PASSWORD = "correct-horse-battery-staple"
USER_DATA = b64encode(b"#!/bin/sh\necho very-secret\n").decode()
KEY = "k1:" + "a" * 43
"""A key for grants."""
SECRETS = {"adminPass": PASSWORD, "user_data": USER_DATA}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """The API of a cloud with two GPU hosts of four GPUs with 8192 MiB each."""
    made = World.build(tmp_path)
    yield made
    made.database.close()


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Any]:
    """Return a function that builds such a cloud with settings of its own."""
    made = []

    def build(settings: str) -> World:
        made.append(World.build(tmp_path, settings=settings))
        return made[-1]

    yield build
    for each in made:
        each.database.close()


def launch(world: World, caller: str = "member", **lease: Any) -> Any:
    """Send the launch of a lease and return the response."""
    return world.call(caller, "POST", "/v1/leases", {"lease": {"cgpus": {"count": 1}} | lease})


def stored(world: World) -> str:
    """Return all that is in the database, as text."""
    # A row of SQLAlchemy abridges its long values.
    return repr({name: [tuple(row) for row in rows] for name, rows in world.rows().items()})


# What is left in the database


def test_a_password_is_not_in_the_database_once_the_server_exists(world):
    world.launch(server=SECRETS)
    assert PASSWORD in stored(world)  # the engine needs it
    world.engine.settle()
    for secret in SECRETS.values():
        assert secret not in stored(world)


def test_a_password_is_not_in_the_database_once_a_lease_has_left_the_queue(world):
    for _ in range(8):
        world.launch()
    lease = launch(world, server=SECRETS, wait=None).json["lease"]
    assert (lease["status"], USER_DATA in stored(world)) == ("QUEUED", True)
    world.call("member", "DELETE", f"/v1/leases/{lease['id']}")
    for secret in SECRETS.values():
        assert secret not in stored(world)


def test_a_password_is_not_in_the_database_once_a_launch_has_failed(world):
    lease = world.launch(server=SECRETS)
    world.engine.fail(lease["id"], "boot-server", "no host has room")
    for secret in SECRETS.values():
        assert secret not in stored(world)


def test_bodies_that_wait_fill_no_more_of_the_database_than_allowed(build):
    world = build("[queue]\nmost_kb_per_project = 64\n")
    for _ in range(8):
        world.launch()
    large = {"metadata": {"text": "x" * 30_000}}
    answers = [launch(world, server=large, wait=None) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [202, 202, 403, 403]
    assert only_error(answers[-1])["code"] == "gsaas.queue.too-large"
    assert stored(world).count("x" * 30_000) == 2
    assert launch(world, "stranger", server=large, wait=None).status_code == 202
    assert launch(world, server={}, wait=None).status_code == 202


def test_a_project_that_launches_and_ends_leases_all_day_is_stopped_at_its_bound(build):
    world = build("[api]\nmost_leases_stored = 3\n")
    for _ in range(3):
        lease = launch(world, server=None).json["lease"]
        world.call("member", "DELETE", f"/v1/leases/{lease['id']}")
    error = only_error(launch(world, server=None))
    assert (error["status"], error["code"]) == (403, "gsaas.leases.too-many")
    assert len(world.rows()["leases"]) == 3
    assert launch(world, "stranger", server=None).status_code == 201


def test_a_project_at_its_bound_does_not_have_its_leases_counted_with_each_attempt(
    build, monkeypatch
):
    world = build("[api]\nmost_leases_stored = 0\n")
    counted = []
    count = leases.stored
    monkeypatch.setattr(leases, "stored", lambda *args: counted.append(args) or count(*args))
    for _ in range(5):
        assert launch(world, server=None).status_code == 403
    assert len(counted) == 1


def test_a_purge_deletes_what_was_released_long_ago_and_nothing_that_lives(world):
    old, new, alive = (launch(world, server=None).json["lease"]["id"] for _ in range(3))
    for lease_id in (old, new):
        world.call("member", "DELETE", f"/v1/leases/{lease_id}")
    now = timeutils.utcnow()
    with world.database.write() as session:
        for lease_id in (old, alive):
            row = session.get(models.LeaseRow, lease_id)
            row.created_at = row.claimed_at = now - datetime.timedelta(days=100)
        session.get(models.LeaseRow, old).released_at = now - datetime.timedelta(days=99)
    with world.database.writing() as connection:
        assert history.purge(connection, now - datetime.timedelta(days=90), 10) == 1
    assert {row[0] for row in world.rows()["leases"]} == {new, alive}
    assert old not in stored(world)


# What is sent


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"networks": [1]}, "lease.server.networks[0] is 1; it must be an object"),
        (
            {"networks": [{"uuid": 5}]},
            "lease.server.networks[0].uuid is 5; it must be text or null",
        ),
        ({"networks": {}}, "lease.server.networks is {}; it must be a list or text: "),
        ({"tags": 5}, "lease.server.tags is 5; it must be a list: "),
        ({"tags": [5]}, "lease.server.tags[0] is 5; it must be text"),
        ({"flavorRef": []}, "lease.server.flavorRef is []; it must be text or a whole number"),
        ({"security_groups": ["web"]}, 'lease.server.security_groups[0] is "web"; it must be an '),
        ({"networks": [{"uuid": "a"}] * 1000}, "at most 64 objects"),
    ],
    ids=repr,
)
def test_server_fields_of_other_types_are_refused_by_their_path(world, fields, detail):
    before = world.rows()
    error = only_error(launch(world, server=fields))
    assert (error["status"], error["code"]) == (400, "gsaas.bad-request")
    assert detail in error["detail"]
    assert world.rows() == before


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["uuid", "port", "name", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = st.dictionaries(st.sampled_from(sorted(schemas.servers.FIELDS)), ANYTHING, max_size=4)
VALID = {"flavorRef": "small", "imageRef": "debian"}


class Found:
    """A service of OpenStack that finds whatever is asked for by a name, and fails as clients do for anything else."""

    def __getattr__(self, _collection: str) -> Any:
        return self._get

    def _get(self, name: Any = "", **query: Any) -> Any:
        for each in (name, *query.values()):
            assert each is None or isinstance(each, str | int)
        return [SimpleNamespace(id="found", name="found")]


class FoundOne(Found):
    def _get(self, name: Any = "", **query: Any) -> Any:
        super()._get(name, **query)
        port = {"device_id": None, "binding_vnic_type": None, "fixed_ips": []}
        return SimpleNamespace(id=name, status="active", min_ram=0, min_disk=0, **port)


def clients() -> Any:
    """Return clients of a cloud in which every name that is a text exists."""
    flavor = SimpleNamespace(name="small", ram=1, disk=1, vcpus=1)
    usage = ("totalInstancesUsed", "totalCoresUsed", "totalRAMUsed")
    limits = ("maxTotalInstances", "maxTotalCores", "maxTotalRAMSize")
    values = [SimpleNamespace(name=each, value=0) for each in usage]
    values += [SimpleNamespace(name=each, value=-1) for each in limits]
    absolute = SimpleNamespace(absolute=values)
    found, one = Found(), FoundOne()
    network = SimpleNamespace(
        networks=found.networks,
        subnets=found.subnets,
        security_groups=found.security_groups,
        get_port=one.get,
        get_network=one.get,
    )
    return SimpleNamespace(
        nova=SimpleNamespace(
            flavors=SimpleNamespace(get=lambda _name: flavor),
            limits=SimpleNamespace(get=lambda: absolute),
            keypairs=one,
        ),
        sdk=SimpleNamespace(image=one, network=network),
    )


@given(FIELDS)
def test_whatever_passes_the_schema_is_refused_by_name_or_reaches_nova_as_it_was_written(given):
    schema = Schema(schemas.servers.SERVER)
    server = VALID | given
    try:
        schema.check(server)
        body = requests.body(server, "", "lease", None)
        checks.check(clients(), "blue", requests.fields(server))
    except (exceptions.BadRequest, exceptions.ServerRefused):
        return
    sent = body["server"] | body
    for name, value in given.items():
        if name in sent and name not in ("tags", "user_data"):
            assert sent[name] == value


def bomb(size: int) -> str:
    """Return user data that unpacks to *size* bytes."""
    return b64encode(gzip.compress(b"#!/bin/sh\n" + bytes(size - 10))).decode()


def test_user_data_that_unpacks_to_much_is_refused_and_takes_little_memory(world):
    """24 such requests at once took 1.8 GB."""
    packed = bomb(15 * 2**20)
    assert len(packed) < 22_000
    tracemalloc.start()
    with ThreadPoolExecutor(24) as pool:
        answers = [pool.submit(launch, world, server={"user_data": packed}) for _ in range(24)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    details = {only_error(answer.result())["detail"] for answer in answers}
    assert details == {"user data unpacks to more than 1048576 bytes"}
    assert peak < 128 * 2**20


def test_user_data_that_is_just_small_enough_takes_little_memory_too(world):
    packed = bomb(2**20)
    tracemalloc.start()
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(launch, world, server={"user_data": packed}) for _ in range(8)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert {answer.result().status_code for answer in answers} == {202}
    assert peak < 128 * 2**20


def test_a_compressed_body_is_not_unpacked(world):
    body = gzip.compress(json.dumps({"lease": {"cgpus": {"count": 1}}}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    error = only_error(world.call("member", "POST", "/v1/leases", data=body, headers=headers))
    assert (error["status"], error["code"]) == (400, "gsaas.bad-request")


BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""The characters with the property Bidi_Control of Unicode."""


def test_a_name_that_would_change_how_a_terminal_shows_it_is_refused(world):
    for character in ("\x1b", "\x7f", "\x85", "\x9b", "\u2028", *BIDI):
        error = only_error(launch(world, name=f"in{character}voice"))
        assert (error["status"], error["code"]) == (400, "gsaas.bad-request")
        assert "without control characters" in error["detail"]


def test_names_may_have_all_characters_of_unicode_but_those_that_control():
    allowed = re.compile(schemas.common.NAME_PATTERN.replace("$", r"\Z"))
    refused = {chr(number) for number in range(0x110000) if not allowed.match(chr(number))}
    controls = {
        chr(number)
        for number in range(0x110000)
        if unicodedata.category(chr(number)) in ("Cc", "Zl", "Zp")
    }
    assert refused == controls | set(BIDI)


OTHER_SPELLINGS = [
    "//metrics",
    "///metrics",
    "/%2fmetrics",
    "/%2Fmetrics",
    "/metrics/",
    "/metrics//",
    "/metrics%2f",
    "/%6detrics",
    "/metric%73",
    "/./metrics",
    "/v1/../metrics",
]


def status_of(url: str, path: str) -> int:
    """Return the status of a request whose path is sent as it is."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("path", OTHER_SPELLINGS)
def test_no_other_spelling_of_a_path_slips_past_a_proxy_that_refuses_metrics(world, path):
    with server.serving(world.app) as url:
        assert status_of(url, "/metrics") == 200
        assert status_of(url, path) == 404


def test_a_server_that_does_not_tell_what_was_sent_serves_metrics_at_its_path_alone(world):
    unknown = {"REQUEST_URI": "", "RAW_URI": ""}
    for path, status in (
        ("/metrics", 200),
        ("/metrics/", 404),
        ("//metrics", 404),
        ("metrics", 404),
    ):
        environ = {**unknown, "PATH_INFO": path}
        with world.app.test_client() as client:
            assert client.open("/", environ_overrides=environ).status_code == status, path


@pytest.mark.parametrize(
    ("sent", "mounted", "status"),
    [
        ("/metrics", "", 200),
        ("/metrics?x=//", "", 200),
        ("http://gpu.example.org/metrics", "", 200),
        ("/gpu/metrics", "/gpu", 200),
        ("/metrics", "/gpu", 200),  # a proxy has told the prefix, and cut it off
        ("/gpu/metrics", "", 404),
        ("/./metrics", "", 404),
        ("/v1/../metrics", "", 404),
        ("//metrics", "", 404),
        ("http://gpu.example.org//metrics", "", 404),
    ],
)
def test_a_path_that_the_server_has_corrected_is_served_only_as_it_was_sent(
    world, sent, mounted, status
):
    """uWSGI resolves dots, and waitress drops slashes at the beginning, before the API sees the path."""
    environ = {"REQUEST_URI": sent, "PATH_INFO": "/metrics", "SCRIPT_NAME": mounted}
    with world.app.test_client() as client:
        assert client.open("/", environ_overrides=environ).status_code == status


def test_the_host_that_a_request_names_is_in_no_link_of_the_answer(world):
    evil = {"Host": "evil.example.org", "X-Forwarded-Host": "evil.example.org"}
    for _ in range(2):
        launch(world, server=None)
    for method, path, body in (
        ("GET", "/", None),
        ("GET", "/v1", None),
        ("GET", "/v1/leases?limit=1", None),
        ("GET", "/v1/gpus?limit=1", None),
        ("POST", "/v1/leases", {"lease": {"cgpus": {"count": 1}, "server": None}}),
    ):
        answer = world.call(
            "member" if "lease" in path else "admin", method, path, body, headers=evil
        )
        assert answer.status_code < 400
        assert "href" in answer.text
        assert "evil" not in answer.text + str(answer.headers)


# What one member may take from all others


def test_real_addresses_are_told_to_nobody_where_the_operator_wants_masking_to_hold(build):
    world = build(f"[grants]\ndirect = never\nkey = {KEY}\ngate_port = 8307\n")
    before = world.rows()
    error = only_error(launch(world, server=None))
    assert (error["status"], error["code"]) == (403, "gsaas.access.direct-disabled")
    assert "192.168." not in error["detail"]
    assert world.rows()["claims"] == before["claims"]
    masked = launch(world, server=None, consumer={"host": "compute1"})
    assert masked.json["lease"]["access"] == "masked"
    assert "192.168." not in masked.text


def test_a_request_that_waits_is_told_no_real_address_either(build):
    world = build("[grants]\ndirect = never\n")
    taken = [world.launch()["id"] for _ in range(8)]
    lease = launch(world, server=None, wait=None).json["lease"]
    world.call("admin", "DELETE", f"/v1/leases/{taken[0]}")
    world.engine.settle()
    shown = world.call("member", "GET", f"/v1/leases/{lease['id']}")
    assert (shown.json["lease"]["status"], shown.json["lease"]["devices"]) == ("RELEASED", [])
    assert "192.168." not in shown.text


@pytest.mark.parametrize(("key", "status"), [("", 403), (f"key = {KEY}", 201)])
def test_by_default_real_addresses_need_a_key_for_grants(build, key, status):
    world = build(f"[grants]\ndirect = with-key\n{key}\n")
    assert launch(world, server=None).status_code == status


def test_an_operator_may_keep_members_from_launching_without_a_vm(build, tmp_path):
    rules = tmp_path / "policy.yaml"
    rules.write_text('"gsaas:leases:create-without-server": "role:admin"\n')
    world = build(f"[oslo_policy]\npolicy_file = {rules}\n")
    error = only_error(launch(world, server=None))
    assert (error["status"], error["code"]) == (403, "gsaas.forbidden")
    assert launch(world, server={}).status_code == 202
    assert launch(world, "admin", server=None).status_code == 201


def test_one_project_has_no_more_than_its_share_of_a_hosts_addresses(build):
    world = build("[rodvr]\nlocal_per_project = 100\n")
    here = {"server": None, "consumer": {"host": "compute1"}}

    def take(count: int, caller: str = "member") -> Any:
        cgpus = {"count": count, "mode": "shared", "memory_mb": 1}
        return launch(world, caller, cgpus=cgpus, **here)

    assert only_error(take(101))["code"] == "gsaas.quota.local-addresses"
    assert [take(60).status_code, take(41).status_code, take(40).status_code] == [202, 403, 202]
    assert take(60, "stranger").status_code == 202


def test_a_member_holds_no_more_gpus_than_its_quota_by_whatever_reservations(build):
    world = build("[quotas]\ncgpus = 4\nreservation_days = 30\nreservation_days_ahead = 90\n")

    def reserve(count: int, **times: str) -> int:
        body = {"reservation": {"cgpus": {"count": count}, **times}}
        headers = {"OpenStack-API-Version": "gpu-scheduling latest"}
        answer = world.call("member", "POST", "/v1/reservations", body, headers=headers)
        return int(answer.status_code)

    def after(days: int) -> str:
        return (timeutils.utcnow() + datetime.timedelta(days=days)).isoformat()

    assert reserve(1, end="9999-12-31") == 403
    assert reserve(1, start="9999-12-30", end="9999-12-31") == 403
    assert reserve(4, end=after(29)) == 201
    for count in (1, 4):
        assert reserve(count, end=after(29)) == 403
        assert reserve(count, start=after(50), end=after(60)) == 403
        assert launch(world, cgpus={"count": count}, server=None).status_code == 403
    launch(world, cgpus={"count": 4}, server=None, wait=None)
    world.claims.run_audit()
    with world.database.read() as session:
        held = [gpu.used_mb + gpu.reserved_mb for gpu in session.query(models.GpuRow)]
    assert sum(held) == 4 * 8192


def test_by_default_no_member_has_every_gpu():
    conf = gsaas.conf.load(files=[])
    assert (conf.quotas.driver, conf.quotas.cgpus) == ("config", 16)
    assert 0 < conf.queue.reserve_for < 86400
    assert 0 < conf.rodvr.local_per_project < 2046
    assert not allows_direct(conf)


def test_a_request_for_all_gpus_does_not_bar_a_stranger_for_ever(world):
    one = world.launch()["id"]
    greedy = launch(world, server=None, cgpus={"count": 8}, wait=None).json["lease"]
    assert greedy["status"] == "QUEUED"
    refused = only_error(launch(world, "stranger", server=None))
    assert "may not be overtaken" in refused["detail"]  # for now
    waiting = launch(world, "stranger", server=None, wait=None).json["lease"]
    with world.database.write() as session:
        row = session.get(models.LeaseRow, greedy["id"])
        row.queued_at -= datetime.timedelta(seconds=world.conf.queue.reserve_for + 1)
    world.claims.run_audit()
    shown = world.call("stranger", "GET", f"/v1/leases/{waiting['id']}").json["lease"]
    assert shown["status"] == "ACTIVE"
    assert launch(world, "stranger", server=None).status_code == 201
    # It has kept its place, and is served as soon as it fits.
    for caller, lease_id in (("admin", one), ("admin", waiting["id"])):
        world.call(caller, "DELETE", f"/v1/leases/{lease_id}")
    world.engine.settle()
    shown = world.call("member", "GET", f"/v1/leases/{greedy['id']}").json["lease"]
    assert (shown["status"], shown["queue"]["position"]) == ("QUEUED", 1)
