# SPDX-License-Identifier: Apache-2.0
"""Whether a client has disconnected, as far as the WSGI server provides its socket."""

from __future__ import annotations

import socket

import pytest

from gsaas.api.disconnects import is_disconnected
from gsaas.standalone.http_server import CONNECTION


def test_without_a_socket_the_client_counts_as_connected():
    assert not is_disconnected({})


@pytest.mark.parametrize("name", ["gunicorn.socket", CONNECTION])
@pytest.mark.parametrize("timeout", [None, 20])
def test_a_socket_is_checked_without_reading_from_it(name, timeout):
    ours, theirs = socket.socketpair()
    ours.settimeout(timeout)
    environ = {name: ours}
    assert not is_disconnected(environ)
    theirs.sendall(b"GET /")
    assert not is_disconnected(environ)
    assert ours.recv(5) == b"GET /"
    theirs.close()
    assert is_disconnected(environ)
    ours.close()
    assert is_disconnected(environ)
