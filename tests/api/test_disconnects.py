"""Whether a client has hung up, asked of what the WSGI server gives us."""

from __future__ import annotations

import socket

import pytest

from gsaas.api.disconnects import is_disconnected
from gsaas.standalone.http_server import CONNECTION


def test_a_server_that_does_not_tell_is_believed_to_have_its_client():
    assert not is_disconnected({})


@pytest.mark.parametrize("name", ["gunicorn.socket", CONNECTION])
@pytest.mark.parametrize("timeout", [None, 20])
def test_a_socket_that_is_handed_out_is_looked_at_and_nothing_is_read_from_it(name, timeout):
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
