# SPDX-License-Identifier: Apache-2.0
"""The error for an invalid request names what is wrong with it, and nothing has changed."""

from __future__ import annotations

import io
import json
from base64 import b64encode

import pytest

from gsaas.api import bodies
from tests.api.world import World, only_error


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One world for all tests, none of which may change it."""
    made = World.build(tmp_path_factory.mktemp("world"))
    yield made
    made.database.close()


IGNITION = b64encode(b'{"ignition":{"version":"3.3.0"}}').decode()
NOT_WHOLE = (0, -1, -(10**30), 10**30, 2**31, 2.0, 2.5, "2", "two", True, None, [], {})


def shared(**cgpus):
    return {"mode": "shared", "memory_mb": 1024, "count": 1} | cgpus


def wrong_cgpus():
    for value in NOT_WHOLE:
        yield {"count": value}, "count"
    for value in NOT_WHOLE:
        yield shared(memory_mb=value), "memory_mb"
    yield {}, "count"
    yield {"memory_mb": 1024}, "count"
    yield {"count": 1, "mode": "shared"}, "memory_mb"
    yield {"count": 1, "memory_mb": 1024}, "memory_mb"
    yield {"count": 1, "mode": "exclusive", "memory_mb": 1024}, "memory_mb"
    for field in ("mode", "locality", "policy"):
        for value in ("no-such", "", 1, None, [], {"a": 1}, "x" * 300, "\x00"):
            yield shared(**{field: value}), field
    yield {"count": 1, "cuont": 2}, "cuont"
    yield [1], "cgpus"
    yield "one", "cgpus"
    yield None, "cgpus"


CASES = list(wrong_cgpus())


@pytest.mark.parametrize(("cgpus", "named"), CASES, ids=[repr(case)[:70] for case in CASES])
def test_wrong_cgpus_are_refused_by_name(world, cgpus, named):
    before = world.rows()
    for path, body in (
        ("/v1/leases", {"lease": {"cgpus": cgpus}}),
        ("/v1/checks", {"check": cgpus}),
    ):
        error = only_error(world.call("member", "POST", path, body))
        assert error["status"] == 400
        assert ("check" if (named, path) == ("cgpus", "/v1/checks") else named) in error["detail"]
    assert world.rows() == before
    assert world.engine.woken == []


@pytest.mark.parametrize(
    ("lease", "detail"),
    [
        (
            {"cgpus": {"count": 0}},
            "lease.cgpus.count is 0; it must be a whole number from 1 to 2147483647",
        ),
        (
            {"cgpus": {"count": 2.5}},
            "lease.cgpus.count is 2.5; it must be a whole number from 1 to 2147483647",
        ),
        (
            {"cgpus": {"count": 1, "mode": "shared"}},
            "lease.cgpus.memory_mb is missing; it must be a whole number: "
            "MiB of GPU memory per cGPU, required in shared mode",
        ),
        (
            {"cgpus": {"count": 1, "memory_mb": 5}},
            "lease.cgpus.memory_mb is 5; it must be absent in exclusive mode, "
            "which claims whole GPUs; mode shared claims parts of GPUs",
        ),
        (
            {"cgpus": {"count": 1, "mode": "both"}},
            'lease.cgpus.mode is "both"; it must be one of exclusive, shared',
        ),
        (
            {"cgpus": {"count": 1}, "sever": {}},
            'lease has no field "sever"; its fields are name, cgpus, server, consumer, wait, priority, '
            "attended, keepalive, reservation, duration, ends_at, movable",
        ),
        (
            {"cgpus": {"count": 1}, "name": ""},
            'lease.name is ""; it must be one line of 1 to 255 characters, '
            "without control characters",
        ),
        (
            {"cgpus": {"count": 1}, "server": {"user_data": "%%%"}},
            "lease.server.user_data is not base64, which Nova requires",
        ),
        (
            {"cgpus": {"count": 1}, "server": {"user_data": IGNITION}},
            "user data is an Ignition config, as for Fedora CoreOS and Flatcar: GSaaS tells VMs of their cGPUs by "
            "cloud-init, which does not read it, and that program reads nothing of GSaaS. Launch an image with "
            "cloud-init, and user data for it; or make the VM with Nova alone, and take cGPUs for it by a lease "
            "without a VM",
        ),
        (
            {"cgpus": {"count": 255}},
            "255 cGPUs were requested; a VM can have 254, one for each masked address",
        ),
        (None, "lease is null; it must be an object"),
    ],
)
def test_a_refusal_says_what_was_wrong_and_what_is_allowed(world, lease, detail):
    error = only_error(world.call("member", "POST", "/v1/leases", {"lease": lease}))
    assert (error["status"], error["detail"]) == (400, detail)


def test_an_unknown_policy_is_refused_with_the_known_ones(world):
    lease = {"cgpus": {"count": 1, "policy": "tarot"}}
    error = only_error(world.call("member", "POST", "/v1/leases", {"lease": lease}))
    assert error["code"] == "gsaas.policy.unknown"
    for policy in world.call("member", "GET", "/v1/policies").json["policies"]:
        assert policy["name"] in error["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        None,
        "lease",
        {"lease": {"cgpus": {"count": 1}}, "lease2": 1},
        {"lease": {"cgpus": {"count": 1}, "consumer": {"host": "gpu1"}}},
        {"lease": {"cgpus": {"count": 1}, "server": {}, "consumer": {}}},
        {"lease": {"cgpus": {"count": 1}, "server": None, "consumer": {"pid": 1}}},
        {"lease": {"cgpus": {"count": 1, "locality": "local"}, "server": None}},
        {"lease": {"cgpus": {"count": 1}, "server": None, "consumer": {"uid": -1}}},
        {"lease": {"cgpus": {"count": 1}, "server": None, "consumer": {"uid": 2**32 - 1}}},
        {"lease": {"cgpus": {"count": 1}, "server": None, "consumer": {"address": "1.2.3.256"}}},
        {"lease": {"cgpus": {"count": 1}, "server": None, "consumer": {"address": "::1"}}},
        {"lease": {"cgpus": {"count": 1}, "server": []}},
        {"lease": {"cgpus": {"count": 1}, "server": {"user_data": 5}}},
        {"lease": {"cgpus": {"count": 1}, "name": "a\nb"}},
        {"lease": {"cgpus": {"count": 1}, "name": "line\n"}},
        {"lease": {"cgpus": {"count": 1}, "name": "nul\x00"}},
        {"lease": {"cgpus": {"count": 1}, "name": "x" * 256}},
    ],
    ids=repr,
)
def test_other_wrong_launches_are_refused(world, body):
    before = world.rows()
    response = world.call("member", "POST", "/v1/leases", data=json.dumps(body), **as_json())
    assert only_error(response)["status"] == 400
    assert world.rows() == before


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"count=1",
        b'{"lease": NaN}',
        b'{"lease": Infinity}',
        b'{"lease": 1e999}',
        b'{"lease": "\xff"}',
        b'{"lease": "\xed\xa0\x80"}',
        b'{"lease": "\\ud800"}',
        b'{"\\udfff": 1}',
        b"9" * 5000,
        b"[" * 100000,
        b"[" * 40 + b"]" * 40,
        b'{"a":' * 40 + b"1" + b"}" * 40,
        '{"lease": 1}'.encode("utf-16"),
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_not_usable_json_is_refused(world, data):
    before = world.rows()
    error = only_error(world.call("member", "POST", "/v1/leases", data=data, **as_json()))
    assert (error["status"], error["code"]) == (400, "gsaas.bad-request")
    assert "JSON" in error["detail"]
    assert world.rows() == before


def test_a_server_may_be_as_deep_as_the_limit_and_no_deeper():
    deepest = b"[" * (bodies.MAX_DEPTH - 1) + b"1" + b"]" * (bodies.MAX_DEPTH - 1)
    assert bodies.parse(deepest)
    with pytest.raises(Exception, match="nested"):
        bodies.parse(b"[" + deepest + b"]")


def test_complete_surrogate_pairs_are_accepted():
    assert bodies.parse(b'"\\ud83c\\udf89"') == "\N{PARTY POPPER}"


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_is_not_declared_as_json_is_refused(world, media_type):
    before = world.rows()
    data = json.dumps({"lease": {"cgpus": {"count": 1}}})
    headers = {"Content-Type": media_type} if media_type else {}
    response = world.call("member", "POST", "/v1/leases", data=data, headers=headers)
    error = only_error(response)
    assert (error["status"], error["code"]) == (415, "gsaas.media-type.unsupported")
    assert world.rows() == before


def in_chunks(world, body: bytes, **environ):
    """Send a launch whose length no header says, as a server passes one on."""
    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    stream = io.BytesIO(body)
    return world.call(
        "member",
        "POST",
        "/v1/leases",
        headers=headers,
        input_stream=stream,
        environ_overrides={"wsgi.input": stream, "CONTENT_LENGTH": ""} | environ,
    )


@pytest.mark.parametrize(
    ("more", "code"),
    [(0, "gsaas.bad-request"), (1, "gsaas.body.too-large"), (100_000, "gsaas.body.too-large")],
)
def test_a_body_in_chunks_is_read_whole_or_refused(world, more, code):
    """Flask cuts it off at the limit, where this one is JSON, but no launch."""
    body = b"{}".ljust(world.conf.api.max_body_bytes + more)
    assert only_error(in_chunks(world, body, **{"wsgi.input_terminated": True}))["code"] == code


def test_where_the_server_does_not_read_chunks_the_length_is_asked_for(world):
    error = only_error(in_chunks(world, b"{}"))
    assert (error["status"], error["code"]) == (411, "gsaas.body.length-required")
    assert "Content-Length" in error["detail"]


def test_a_body_that_is_too_large_is_refused(world):
    before = world.rows()
    body = {"lease": {"cgpus": {"count": 1}, "server": {"personality": "x" * 300000}}}
    error = only_error(world.call("member", "POST", "/v1/leases", body))
    assert (error["status"], error["code"]) == (413, "gsaas.body.too-large")
    assert "262144" in error["detail"]
    assert world.rows() == before


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=ten", "limit"),
        ("limit=1.0", "limit"),
        ("limit=" + "9" * 5000, "limit"),
        ("limit=", "limit"),
        ("limit=1&limit=2", "limit"),
        ("marker=unknown", "marker"),
        ("marker=%00", "marker"),
        ("marker=", "marker"),
        ("status=active", "status"),
        ("name=", "name"),
        ("name=a%0Ab", "name"),
        ("name=" + "x" * 256, "name"),
        ("server_id=%00", "server_id"),
        ("all_projects=yes", "all_projects"),
        ("colour=red", "colour"),
    ],
)
def test_a_wrong_query_is_refused_by_name(world, query, named):
    error = only_error(world.call("member", "GET", f"/v1/leases?{query}"))
    assert error["status"] == 400
    assert named in error["detail"]


@pytest.mark.parametrize("path", ["/v1/gpus", "/v1/hosts", "/v1/endpoints", "/v1/policies", "/"])
def test_no_address_takes_a_query_that_it_does_not_know(world, path):
    error = only_error(world.call("admin", "GET", f"{path}?colour=red"))
    assert error["status"] == 400
    assert 'no field "colour"' in error["detail"]


@pytest.mark.parametrize(
    "lease_id", ["x", "%00", "%0a", "x" * 300, "..", "%F0%9F%8E%89", "a b", "'"]
)
def test_what_cannot_be_an_id_is_not_found(world, lease_id):
    before = world.rows()
    for method in ("GET", "DELETE"):
        error = only_error(world.call("admin", method, f"/v1/leases/{lease_id}"))
        assert error["status"] == 404
    assert world.rows() == before


@pytest.mark.parametrize("noun", ["gpu", "host"])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"disabled": 1},
        {"disabled": "true"},
        {"disabled": None},
        {"disabled_reason": "why"},
        {"disabled": True, "disabled_reason": ""},
        {"disabled": True, "disabled_reason": "two\nlines"},
        {"disabled": True, "memory_mb": 1},
        [],
    ],
    ids=repr,
)
def test_a_wrong_change_of_the_inventory_is_refused(world, noun, change):
    before = world.rows()
    path = {"gpu": "/v1/gpus/GPU-0001-0", "host": "/v1/hosts/gpu1"}[noun]
    error = only_error(world.call("admin", "PATCH", path, {noun: change}))
    assert error["status"] == 400
    assert noun in error["detail"]
    assert world.rows() == before


def as_json():
    return {"headers": {"Content-Type": "application/json"}}
