# SPDX-License-Identifier: Apache-2.0
"""What anybody who reaches the API tries, and what its users do every day, under each of its servers.

The servers are those of operators, with the configuration that is shipped or documented: HAProxy in front of uWSGI,
gunicorn, and gsaas-standalone. A server has habits of its own: it corrects paths, joins headers, reads bodies or not.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile import servers
from tests.hostile.servers import KINDS, Answer, Server
from tests.hostile.test_api import OTHER_SPELLINGS
from tests.hostile.test_requests import NAMES, PROFILE, WITH_BODIES, along
from tests.support.launcher import Launcher
from tests.support.waiting import until

LAUNCH = {"lease": {"cgpus": {"count": 1, "mode": "shared", "memory_mb": 64}, "server": None}}
SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE = 1_500_000
"""Bytes: more than the API reads, and than buffers of sockets take."""


@pytest.fixture(scope="module")
def started(tmp_path_factory) -> Iterator[dict[str, Server]]:
    """Every server, by its kind."""
    folder = tmp_path_factory.mktemp
    with ExitStack() as stack:
        uwsgi = stack.enter_context(servers.uwsgi(folder("uwsgi")))
        all_of_them = [
            uwsgi,
            stack.enter_context(servers.haproxy(folder("haproxy"), uwsgi)),
            stack.enter_context(servers.gunicorn(folder("gunicorn"))),
            stack.enter_context(servers.standalone(folder("standalone"))),
        ]
        yield {server.kind: server for server in all_of_them}


@pytest.fixture(params=KINDS)
def server(request, started) -> Server:
    """A server as clients reach it."""
    return started[request.param]


@pytest.fixture(params=[*KINDS, "uwsgi"])
def listener(request, started) -> Server:
    """The same, and uWSGI itself, as a program of the controller reaches it."""
    return started[request.param]


def lives(server: Server) -> None:
    assert server.ask("GET", "/healthcheck").json == {"status": "ok"}


def in_pieces(body: bytes, size: int) -> Iterator[bytes]:
    return (body[start : start + size] for start in range(0, len(body), size))


# What users do


def test_a_lease_is_launched_listed_shown_changed_and_released(listener):
    launched = listener.ask("POST", "/v1/leases", "member", LAUNCH)
    assert launched.status == 201, launched.body
    lease = launched.json["lease"]
    path = f"/v1/leases/{lease['id']}"
    assert launched.headers["Location"] == path
    assert launched.headers["OpenStack-API-Version"] == "gpu-scheduling 1.0"
    listed = listener.ask("GET", "/v1/leases?limit=1000", "member")
    assert lease["id"] in {each["id"] for each in listed.json["leases"]}
    exported = listener.ask("GET", f"{path}/environment?format=shell", "member")
    assert exported.body.decode().startswith("export ")
    newest = ("OpenStack-API-Version", "gpu-scheduling latest")
    change = {"lease": {"name": "größer 💡"}}
    changed = listener.ask("PATCH", path, "member", change, headers=[newest])
    assert changed.json["lease"]["name"] == change["lease"]["name"]
    assert listener.ask("DELETE", path, "member").status == 202
    until(lambda: listener.ask("GET", path, "member").json["lease"]["status"] == "RELEASED")


def test_a_launch_with_its_key_again_is_the_same_lease(listener):
    key = ("Idempotency-Key", f"again-{listener.kind}-{time.time_ns()}")
    leases = [
        listener.ask("POST", "/v1/leases", "member", LAUNCH, headers=[key]).json["lease"]["id"]
        for _ in range(2)
    ]
    assert leases[0] == leases[1]
    assert listener.ask("DELETE", f"/v1/leases/{leases[0]}", "member").status == 202


@pytest.mark.parametrize("kind", ["haproxy", "gunicorn"])
def test_gsaas_run_works(started, kind, tmp_path):
    """Under gsaas-standalone, consumers are in namespaces; tests/kernel/standalone has them."""
    server = started[kind]
    launcher = Launcher(Path(sys.executable).with_name("gsaas"), tmp_path / "credentials.json")
    launcher.use(server.url, server.token("member"))
    if server.certificate:
        launcher.environment |= dict.fromkeys(
            ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), server.certificate
        )
    ran = launcher.run("-ncgpus=1", "-mode=shared", "-poolmem=64", "--", "printenv", "GSAAS_LEASE")
    assert (ran.returncode, ran.stderr) == (0, "")
    path = f"/v1/leases/{ran.stdout.strip()}"
    assert server.ask("GET", path, "member").json["lease"]["status"] == "RELEASED"


@pytest.mark.parametrize(
    ("method", "path", "caller", "status", "code"),
    [
        ("GET", "/v1/leases", None, 401, "gsaas.unauthorized"),
        ("DELETE", "/v1/hosts/gpu1", "member", 403, "gsaas.forbidden"),
        ("GET", "/v1/leases/nothing", "member", 404, "gsaas.not-found"),
        ("GET", "/v1/nothing", "member", 404, "gsaas.url.not-found"),
        ("PUT", "/v1/leases", "member", 405, "gsaas.method-not-allowed"),
        ("GET", "/v1/leases?limit=many", "member", 400, "gsaas.bad-request"),
        ("GET", "/v1/leases?x=%00", "member", 400, "gsaas.bad-request"),
    ],
)
def test_an_error_has_its_status_its_code_and_the_id_of_its_request(
    server, method, path, caller, status, code
):
    answer = server.ask(method, path, caller)
    assert (answer.status, answer.code) == (status, code)
    assert answer.json["errors"][0]["request_id"] == answer.headers["X-OpenStack-Request-ID"]


def test_what_needs_no_token_is_answered(server):
    assert server.ask("GET", "/").status == 300
    assert server.ask("GET", "/v1").json["version"]["links"][0]["href"] == "/v1/"
    assert server.ask("GET", "/v1/openapi.json").json["openapi"] == "3.1.0"
    assert server.ask("HEAD", "/healthcheck").body == b""


# Bodies


def test_a_body_in_chunks_is_read(listener):
    body = json.dumps(LAUNCH).encode()
    for size in (1, 20, len(body)):
        answer = listener.ask("POST", "/v1/leases", "member", in_pieces(body, size))
        assert answer.status == 201, answer.body
        assert (
            listener.ask("DELETE", f"/v1/leases/{answer.json['lease']['id']}", "member").status
            == 202
        )


def test_a_body_in_chunks_that_is_no_json_is_refused_as_any_other(listener):
    for body in (b"", b"{", b"\xff", json.dumps(LAUNCH).encode() + b"}"):
        answer = listener.ask("POST", "/v1/leases", "member", iter([body] if body else []))
        assert (answer.status, answer.code) == (400, "gsaas.bad-request")
        assert "the body is not valid JSON" in answer.json["errors"][0]["detail"]


@pytest.mark.parametrize("size", [LARGE, 65536, 1000])
def test_a_body_in_chunks_that_is_too_large_is_refused_and_the_client_sees_it(listener, size):
    """Of one whose beginning is valid, nothing is cut off."""
    body = json.dumps(LAUNCH).encode().ljust(LARGE)
    answer = listener.ask("POST", "/v1/leases", "member", in_pieces(body, size))
    assert answer.status == 413
    lives(listener)


@pytest.mark.parametrize("size", [262_145, LARGE, 8_000_000])
def test_a_body_that_is_too_large_is_refused_and_the_client_sees_it(listener, size):
    assert listener.ask("POST", "/v1/leases", "member", b" " * size).status == 413
    lives(listener)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("path", "caller", "status"),
    [("/v1/leases", None, 401), ("/v1/nothing", "member", 404), ("/healthcheck", None, 405)],
)
def test_a_client_sees_the_answer_to_a_request_whose_body_nobody_reads(
    listener, path, caller, status, chunked
):
    body = b" " * 1_000_000
    sent = in_pieces(body, 50_000) if chunked else body
    assert listener.ask("POST", path, caller, sent).status == status
    lives(listener)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("times", [1, 2000])
def test_a_body_that_nobody_reads_is_never_taken_for_a_request(server, times, chunked):
    body = SMUGGLED * times
    framing = b"Content-Length: %d\r\n\r\n" % len(body) + body
    if chunked:
        framing = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    first = b"POST /v1/leases HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + framing
    second = b"GET /healthcheck HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    statuses = re.findall(rb"^HTTP/1\.1 (\d+)", server.send(first + second), re.MULTILINE)
    assert statuses in ([b"401"], [b"401", b"200"])


def test_a_client_that_expects_100_continue_gets_it(server):
    body = json.dumps(LAUNCH).encode()
    lines = [
        "POST /v1/leases HTTP/1.1",
        "Host: x",
        f"X-Auth-Token: {server.token('member')}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Expect: 100-continue",
        "Connection: close",
    ]
    with server.connect() as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b"HTTP/1.1 201 " in answer
    lease = json.loads(answer.partition(b"\r\n\r\n")[2])["lease"]
    assert server.ask("DELETE", f"/v1/leases/{lease['id']}", "member").status == 202


def test_a_compressed_body_is_not_unpacked(server):
    body = gzip.compress(json.dumps(LAUNCH).encode())
    encoded = [("Content-Encoding", "gzip")]
    answer = server.ask("POST", "/v1/leases", "member", body, headers=encoded)
    assert (answer.status, answer.code) == (400, "gsaas.bad-request")


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: many",
        b"Content-Length: -1",
        b"Content-Length: 1\r\nContent-Length: 2",
        b"Transfer-Encoding: gzip",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 2",
    ],
)
def test_a_body_of_unclear_length_is_refused_and_nothing_after_it_is_answered(server, header):
    head = b"POST /v1/leases HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += b"X-Auth-Token: " + server.token("member").encode() + b"\r\nConnection: close\r\n"
    answer = server.send(head + header + b"\r\n\r\n" + SMUGGLED)
    assert answer.count(b"HTTP/1.") == 1
    assert answer.split()[1][:1] in (b"4", b"5")
    lives(server)


@pytest.mark.parametrize("length", ["0", "1", "5000"])
@pytest.mark.parametrize("name", ["Content_Length", "content_length"])
def test_no_other_spelling_of_a_header_says_how_long_a_body_is(server, name, length):
    answer = server.ask("POST", "/v1/leases", "member", LAUNCH, headers=[(name, length)])
    assert answer.status == 201, answer.body
    server.ask("DELETE", f"/v1/leases/{answer.json['lease']['id']}", "member")
    chunked = server.ask(
        "POST", "/v1/leases", "member", LAUNCH, headers=[("Transfer_Encoding", "chunked")]
    )
    assert chunked.status == 201, chunked.body
    server.ask("DELETE", f"/v1/leases/{chunked.json['lease']['id']}", "member")


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00 hello there\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nno colon\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 70_000 + b"\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\nConnection: close\r\n\r\n",
    ],
    ids=["tls", "no-colon", "version", "long-line", "long-header", "nul"],
)
def test_what_is_hardly_a_request_costs_nobody_else_an_answer(server, request_):
    answer = server.send(request_)
    assert not answer or answer.split()[1] != b"500"
    lives(server)


# Headers


HIDDEN = ["X_Auth_Token", "X_auth-token", "x_auth_token", "X-Auth_Token"]


@pytest.mark.parametrize("name", HIDDEN)
def test_a_header_with_an_underscore_is_dropped(server, name):
    """One that can be told apart by what it does: with a token of that name, nobody is authenticated."""
    assert server.ask("GET", "/v1/leases", headers=[(name, server.token("member"))]).status == 401


FORGED = [
    [("X_Forwarded_For", "203.0.113.{}")],
    [("X-Forwarded-For", "203.0.113.{}")],
    [("X-Forwarded-For", "203.0.113.{}, 198.51.100.7")],
    [("x-forwarded_for", "203.0.113.{}"), ("X-Forwarded-For", "203.0.113.{}")],
    [("Forwarded", "for=203.0.113.{}")],
    [("Forwarded", 'for="203.0.113.{0}", for="[2001:db8::{0}]:80"')],
    [("X-Real-IP", "203.0.113.{}"), ("X-Client-IP", "203.0.113.{}")],
    [("X-Forwarded-For", "no address {}"), ("Forwarded", "for=203.0.113.{}")],
]


def with_proxy(
    server: Server, headers: list[tuple[str, str]], source: str
) -> list[tuple[str, str]]:
    """Return *headers* as the server gets them: one that has no proxy of its own here, behind one that appends."""
    if server.kind != "gunicorn":
        return headers
    before = [value for name, value in headers if name == "X-Forwarded-For"]
    others = [header for header in headers if header[0] != "X-Forwarded-For"]
    return [*others, ("X-Forwarded-For", ", ".join([*before, source]))]


@pytest.mark.parametrize("number", range(len(FORGED)))
@pytest.mark.parametrize("kind", ["haproxy", "gunicorn"])
def test_a_client_writes_no_address_into_a_security_event_and_causes_no_more_of_them(
    started, kind, number
):
    """Each attempt names another address, and the limit is for each address."""
    server, source, last = started[kind], f"127.0.1.{number + 1}", f"127.0.2.{number + 1}"
    for attempt in range(12):
        forged = [(name, value.format(attempt + 1)) for name, value in FORGED[number]]
        headers = with_proxy(server, forged, source)
        assert server.ask("GET", "/v1/leases", headers=headers, source=source).status == 401
    # Events are logged one after the other: that of another address comes after all of this one.
    server.ask("GET", "/v1/leases", headers=with_proxy(server, [], last), source=last)
    until(lambda: last in server.refused_addresses())
    addresses = server.refused_addresses()
    assert addresses.count(source) == 3
    assert all(address.startswith("127.0.") for address in addresses)


@pytest.mark.parametrize(
    "headers",
    [
        [("Host", "evil.example.org")],
        [("X-Forwarded-Host", "evil.example.org")],
        [("Forwarded", "host=evil.example.org;proto=ftp")],
        [("X-Forwarded-Prefix", "//evil.example.org")],
        [("X-Forwarded-Prefix", "https://evil.example.org")],
        [("X-Forwarded-Prefix", "/..//evil.example.org")],
        [("X_Forwarded_Prefix", "/evil")],
        [("X-Forwarded_Prefix", "/evil")],
        [("SCRIPT_NAME", "/evil")],
        [("Script-Name", "/evil")],
    ],
    ids=str,
)
def test_no_header_of_a_client_changes_where_links_lead(server, headers):
    for path in ("/", "/v1"):
        answer = server.ask("GET", path, headers=headers)
        assert answer.status < 400
        assert b'"href":"/' in answer.body
        assert b"evil" not in answer.body


def test_behind_haproxy_no_client_says_under_which_path_the_api_is(started):
    headers = [("X-Forwarded-Prefix", "/evil")]
    assert b"evil" not in started["haproxy"].ask("GET", "/v1", headers=headers).body


# Paths


MORE_SPELLINGS = [
    *(
        "/metrics;x",
        "/metrics/.",
        "/metrics/..%2fmetrics",
        "/metrics%00",
        "/metrics%20",
        "/METRICS",
    ),
    *("/x/../metrics", "/%2e/metrics", "/v1/%2e%2e/metrics", "/v1%2f..%2fmetrics", "/metrics#x"),
    *(
        "/.//metrics",
        "//x/../metrics",
        "\\metrics",
        "metrics",
        "http:///x/../metrics",
        "/v1/..;/metrics",
    ),
]
PREFIXED = [
    [],
    [("X-Forwarded-Prefix", "/v1/..")],
    [("X-Forwarded-Prefix", "/.")],
    [("X_Forwarded_Prefix", "/x")],
    [("SCRIPT_NAME", "/v1/..")],
    [("SCRIPT_NAME", "/x")],
    [("SCRIPT-NAME", "/x")],
    [("PATH_INFO", "/metrics")],
    [("REQUEST_URI", "/metrics"), ("RAW_URI", "/metrics")],
    [("X-Original-URL", "/metrics"), ("X-Rewrite-URL", "/metrics")],
]


@pytest.mark.parametrize("path", [*OTHER_SPELLINGS, *MORE_SPELLINGS, "/x/metrics"])
def test_no_other_spelling_of_a_path_slips_past_a_proxy_that_refuses_metrics(listener, path):
    for headers in PREFIXED:
        answer = raw(listener, path, headers)
        assert answer.status >= 400, (path, headers)
        assert b"gsaas_" not in answer.body, (path, headers)


def raw(server: Server, path: str, headers: list[tuple[str, str]]) -> Answer:
    """Send a request whose target is no path for http.client, too."""
    lines = [f"GET {path} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in headers)]
    answer = server.send("\r\n".join([*lines, "Connection: close", "", ""]).encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    # uWSGI closes the connection of what it takes for no request.
    return Answer(int(head.split()[1]) if head else 400, {}, body)


def test_metrics_are_served_to_who_reaches_the_server_itself(listener):
    for target in ("/metrics", "/metrics?"):
        answer = raw(listener, target, [])
        assert answer.status == (404 if listener.kind == "haproxy" else 200)
        assert (b"gsaas_" in answer.body) == (listener.kind != "haproxy")


# Anything, last: a member's requests may take all GPUs


@PROFILE
@given(data=st.data())
def test_no_body_of_a_member_is_an_internal_error(server, data):
    route = data.draw(st.sampled_from(WITH_BODIES))
    body = json.dumps(data.draw(along(route.takes.body_schema.schema))).encode()
    name = data.draw(NAMES).replace("LEASE", "00000000-0000-4000-8000-000000000000")
    path = re.sub(r"\{\w+\}", lambda _: name, route.path)
    sent = in_pieces(body, 100) if data.draw(st.booleans()) else body
    answer = server.ask(route.method, path, "member", sent)
    assert answer.status != 500, answer.body
    assert answer.status < 400 or answer.code
