# SPDX-License-Identifier: Apache-2.0
"""A fake daemon for the supervisor to look after: it does what it is told, and nothing else.

    fake_daemon.py PORT GPU [BEHAVIOUR…]

It speaks the simulated middleware's protocol: on connect, one line of JSON that names the GPU. Behaviours:

    fork         a child that shares the listener and outlives its parent
    escape       a child in a session of its own that outlives its parent
    another-port it listens on the port after PORT, too
    deaf         SIGTERM is ignored, by children too
    mute         connections are taken and never answered
    fail         ends at once with status 3 and a last word
    fail-without=F ends at once unless the file F exists
    chatty       prints a lot
    look         prints what it sees, in JSON: environment, /dev, working folder
"""

# ruff: noqa: T201 - printing is one of the things that daemons do

import json
import os
import signal
import socket
import sys
import time


def main(port, gpu, *behaviours):
    if "fail" in behaviours:
        print("no licence found")
        sys.exit(3)
    for behaviour in behaviours:
        missing = behaviour.removeprefix("fail-without=")
        if missing != behaviour and not os.path.exists(missing):  # noqa: PTH110 - pathlib would double the time to start
            sys.exit(4)
    if "look" in behaviours:
        look()
    if "deaf" in behaviours:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "chatty" in behaviours:
        print("x\n" * 20_000, end="", flush=True)
    ports = range(int(port), int(port) + 1 + behaviours.count("another-port"))
    listener, *others = [socket.create_server(("0.0.0.0", number)) for number in ports]
    for other in others:
        if os.fork() == 0:
            serve(other, gpu, behaviours)
    if "fork" in behaviours and os.fork() == 0:
        serve(listener, gpu, behaviours)
    if "escape" in behaviours and os.fork() == 0:
        os.setsid()
        time.sleep(600)
    serve(listener, gpu, behaviours)


def serve(listener, gpu, behaviours):
    kept = []
    while True:
        connection, _ = listener.accept()
        if "mute" in behaviours:
            kept.append(connection)
            continue
        with connection:
            connection.sendall(json.dumps({"gpu": gpu}).encode() + b"\n")


def look():
    seen = {
        "environment": dict(os.environ),
        "devices": sorted(os.listdir("/dev")),  # noqa: PTH208
        "folder": os.getcwd(),  # noqa: PTH109
    }
    print(json.dumps(seen), flush=True)


main(*sys.argv[1:])
