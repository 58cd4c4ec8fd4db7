# SPDX-License-Identifier: Apache-2.0
"""Whether a client has disconnected, as far as the WSGI server says so or provides its socket."""

from __future__ import annotations

import socket

import pytest

from gsaas.api.disconnects import is_disconnected


def test_without_a_socket_the_client_counts_as_connected():
    assert not is_disconnected({})


@pytest.mark.parametrize("is_gone", [False, True])
def test_waitress_is_asked(is_gone):
    assert is_disconnected({"waitress.client_disconnected": lambda: is_gone}) is is_gone


@pytest.mark.parametrize("timeout", [None, 20])
def test_a_socket_is_checked_without_reading_from_it(timeout):
    ours, theirs = socket.socketpair()
    ours.settimeout(timeout)
    environ = {"gunicorn.socket": ours}
    assert not is_disconnected(environ)
    theirs.sendall(b"GET /")
    assert not is_disconnected(environ)
    assert ours.recv(5) == b"GET /"
    theirs.close()
    assert is_disconnected(environ)
    ours.close()
    assert is_disconnected(environ)
