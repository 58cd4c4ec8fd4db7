# SPDX-License-Identifier: Apache-2.0
"""Of the headers of proxies, what a proxy wrote is believed, and what a client wrote before it is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas.wsgi import forwarded

PEER = "192.0.2.1"


def read(proxies: int = 1, **headers: str) -> dict[str, str]:
    """Return the environment of a request from PEER after its headers were read."""
    environ = {"REMOTE_ADDR": PEER, "HTTP_HOST": "h", "SCRIPT_NAME": "", "wsgi.url_scheme": "http"}
    environ |= {f"HTTP_{name}": value for name, value in headers.items()}
    forwarded.read(environ, proxies)
    return environ


@pytest.mark.parametrize(
    ("value", "proxies", "address"),
    [
        ("198.51.100.7", 1, "198.51.100.7"),
        ("203.0.113.1, 198.51.100.7", 1, "198.51.100.7"),
        ("203.0.113.1,198.51.100.7", 1, "198.51.100.7"),
        ("203.0.113.1, 198.51.100.7, 10.0.0.2", 2, "198.51.100.7"),
        ("198.51.100.7", 2, "198.51.100.7"),  # the outer proxy was left out
        ("2001:DB8::0:7", 1, "2001:db8::7"),
        ("[2001:db8::7]:443", 1, "2001:db8::7"),
        ("::ffff:198.51.100.7", 1, "198.51.100.7"),  # of a proxy that listens on IPv6 for both
        ("198.51.100.7:5000", 1, "198.51.100.7"),
        ("203.0.113.1, unknown", 1, PEER),
        ("203.0.113.1, ", 1, PEER),
        ("", 1, PEER),
        (",,,", 1, PEER),
        ("198.51.100.7\t", 1, "198.51.100.7"),
    ],
)
def test_the_address_is_what_the_outermost_of_our_proxies_saw(value, proxies, address):
    assert read(proxies, X_FORWARDED_FOR=value)["REMOTE_ADDR"] == address


@pytest.mark.parametrize(
    ("value", "proxies", "address"),
    [
        ("for=198.51.100.7", 1, "198.51.100.7"),
        ("for=203.0.113.1, for=198.51.100.7;proto=https", 1, "198.51.100.7"),
        ('for="203.0.113.1, for=1.1.1.1", For="[2001:db8::7]:4711"', 1, "2001:db8::7"),
        ("for=203.0.113.1, for=198.51.100.7, for=10.0.0.2", 2, "198.51.100.7"),
        ("for=_hidden", 1, PEER),
        ("by=203.0.113.1", 1, PEER),
        ('for="203.0.113.1', 1, PEER),
        ('for="203.0.113.1, for="[2001:db8::7]"', 1, "2001:db8::7"),
    ],
)
def test_the_standard_header_is_read_alike(value, proxies, address):
    assert read(proxies, FORWARDED=value)["REMOTE_ADDR"] == address


def test_who_appends_to_one_header_is_not_deceived_by_the_other():
    forged = read(FORWARDED="for=203.0.113.1;host=evil;proto=https", X_FORWARDED_FOR="198.51.100.7")
    assert forged["REMOTE_ADDR"] == "198.51.100.7"
    assert (forged["HTTP_HOST"], forged["wsgi.url_scheme"]) == ("h", "http")


@pytest.mark.parametrize(
    ("value", "prefix"),
    [
        ("/gpu", "/gpu"),
        ("/gpu/v2.1/", "/gpu/v2.1"),
        ("/evil, /gpu", "/gpu"),
        ("//evil.example.org", ""),
        ("https://evil.example.org", ""),
        ("evil", ""),
        ("/", ""),
        ("/v1/..", ""),
        ("/.", ""),
        ("/./x", ""),
        ("/a//b", ""),
        ("/%2e%2e", ""),
        ("/a b", ""),
        ("/a\\b", ""),
        ("/a?b", ""),
        ("/.well-known/gpu", "/.well-known/gpu"),
        ("/...", "/..."),
    ],
)
def test_a_prefix_is_a_path_in_its_only_spelling(value, prefix):
    assert read(X_FORWARDED_PREFIX=value)["SCRIPT_NAME"] == prefix


def test_the_scheme_and_the_host_are_those_of_the_last_proxy():
    told = read(X_FORWARDED_PROTO="ftp, https", X_FORWARDED_HOST="evil, gpu.example.org:8443")
    assert (told["wsgi.url_scheme"], told["HTTP_HOST"]) == ("https", "gpu.example.org:8443")
    refused = read(X_FORWARDED_PROTO="ftp", X_FORWARDED_HOST="<script>")
    assert (refused["wsgi.url_scheme"], refused["HTTP_HOST"]) == ("http", "h")
    whole = read(FORWARDED="for=198.51.100.7;proto=HTTPS;host=gpu.example.org")
    assert (whole["wsgi.url_scheme"], whole["HTTP_HOST"]) == ("https", "gpu.example.org")


TEXT = st.text(alphabet='0123456789abcdef.:,;=" []\\/forx_-\t', max_size=40)


@given(clients=TEXT, proxies=st.integers(1, 3))
def test_whatever_a_client_writes_the_address_is_that_of_the_proxies(clients, proxies):
    """Each proxy appends; the first of them the client's address."""
    appended = ["2001:db8::7", *(f"10.0.0.{hop}" for hop in range(1, proxies))]
    before = [clients] if clients else []
    plain = ", ".join([*before, *appended])
    assert read(proxies, X_FORWARDED_FOR=plain)["REMOTE_ADDR"] == "2001:db8::7"
    standard = ", ".join([*before, *(f'for="[{address}]:1";by=_us' for address in appended)])
    assert read(proxies, FORWARDED=standard)["REMOTE_ADDR"] == "2001:db8::7"


@given(value=TEXT, proxies=st.integers(1, 3))
def test_an_address_is_one_or_that_of_the_connection(value, proxies):
    for name in ("X_FORWARDED_FOR", "FORWARDED"):
        address = read(proxies, **{name: value})["REMOTE_ADDR"]
        assert forwarded.parse_address(address) == address
