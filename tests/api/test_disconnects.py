"""Whether a client has hung up, asked of what the WSGI server gives us."""

from __future__ import annotations

import socket

from gsaas.api.disconnects import gone


def test_a_server_that_does_not_tell_is_believed_to_have_its_client():
    assert not gone({})


def test_waitress_is_asked():
    assert gone({"waitress.client_disconnected": lambda: True})
    assert not gone({"waitress.client_disconnected": lambda: False})


def test_the_socket_that_gunicorn_hands_out_is_looked_at_and_nothing_is_read_from_it():
    ours, theirs = socket.socketpair()
    environ = {"gunicorn.socket": ours}
    assert not gone(environ)
    theirs.sendall(b"GET /")
    assert not gone(environ)
    assert ours.recv(5) == b"GET /"
    theirs.close()
    assert gone(environ)
    ours.close()
    assert gone(environ)
