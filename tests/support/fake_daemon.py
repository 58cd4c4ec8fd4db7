# SPDX-License-Identifier: Apache-2.0
"""A fake daemon for the supervisor to look after: it does what it is told, and nothing else.

    fake_daemon.py PORT GPU [BEHAVIOUR…]

It speaks the simulated middleware's protocol: on connect, one line of JSON that names the GPU. Behaviours:

    fork         a child that shares the listener and outlives its parent
    escape       a child in a session of its own that outlives its parent
    deaf         SIGTERM is ignored, by children too
    mute         connections are taken and never answered
    fail         ends at once with status 3 and a last word
    crash-once=F ends at once the first time, and not once the file F exists
    chatty       prints a lot
    look=F       writes into F what it sees: environment, /dev, working folder
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
        if behaviour.startswith("crash-once="):
            flag = behaviour.partition("=")[2]
            if not os.path.exists(flag):  # noqa: PTH110 - pathlib would double the time to start
                os.close(os.open(flag, os.O_CREAT))
                sys.exit(4)
        if behaviour.startswith("look="):
            look(behaviour.partition("=")[2])
    if "deaf" in behaviours:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "chatty" in behaviours:
        print("x" * (3 << 20), flush=True)
    listener = socket.create_server(("0.0.0.0", int(port)))
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


def look(file):
    seen = {
        "environment": dict(os.environ),
        "devices": sorted(os.listdir("/dev")),  # noqa: PTH208
        "folder": os.getcwd(),  # noqa: PTH109
        "user": os.getuid(),
        "pid": os.getpid(),
    }
    with open(file + ".new", "w") as out:  # noqa: PTH123
        json.dump(seen, out)
    os.replace(file + ".new", file)  # noqa: PTH105


main(*sys.argv[1:])
