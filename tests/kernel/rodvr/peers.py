# SPDX-License-Identifier: Apache-2.0
"""Both ends of a connection, as small programs that run inside namespaces.

    peers.py daemon NAME PORT…         says "NAME:PORT peer=IP" to every client, then echoes
    peers.py ask IP PORT [SOURCE]      prints what the daemon said, or the name of the error
    peers.py talk IP PORT COUNT [SPORT [SOURCE]] prints the same, then COUNT times a line, then how it ended
    peers.py wait IP PORT [SOURCE]     prints the same, then only waits, then how that ended
    peers.py ping IP SECONDS           sends an ICMP echo request, prints "answered" or "silence"
    peers.py transfer IP PORT MIB      sends random bytes, prints whether they came back as they were

Only the standard library, and no import of gsaas: they must start fast and know nothing.
"""

# ruff: noqa: T201 - printing is how these programs answer

import asyncio
import hashlib
import os
import socket
import struct
import sys
import threading
import time

SECONDS = 20.0


def daemon(name, *ports):
    async def serve(reader, writer, port):
        try:
            peer = writer.get_extra_info("peername")[0]
            writer.write(f"{name}:{port} peer={peer}\n".encode())
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def main():
        for port in map(int, ports):
            await asyncio.start_server(lambda r, w, p=port: serve(r, w, p), "0.0.0.0", port)
        print("ready", flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())


def _connect(ip, port, source=("", 0)):
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    connection.settimeout(SECONDS)
    connection.bind(source)
    connection.connect((ip, int(port)))
    return connection, connection.makefile("rwb")


def ask(ip, port, source="", seconds=SECONDS):
    globals()["SECONDS"] = float(seconds)
    try:
        _, stream = _connect(ip, port, (source, 0))
        print(stream.readline().decode().strip())
    except OSError as error:
        print(type(error).__name__)


def talk(ip, port, count, source_port=0, source=""):
    try:
        _, stream = _connect(ip, port, (source, int(source_port)))
        print(stream.readline().decode().strip(), flush=True)
        for _ in range(int(count)):
            stream.write(b"x\n")
            stream.flush()
            if not stream.readline():
                raise EOFError
            time.sleep(0.02)
        print("survived", flush=True)
    except (OSError, EOFError) as error:
        print(type(error).__name__, flush=True)


def send_on_signal(ip, port, source=""):
    """Say something once a line comes in."""
    try:
        _, stream = _connect(ip, port, (source, 0))
        print(stream.readline().decode().strip(), flush=True)
        sys.stdin.readline()
        stream.write(b"x\n")
        stream.flush()
        print("answered" if stream.readline() else "EOFError", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)


def wait(ip, port, source=""):
    try:
        connection, stream = _connect(ip, port, (source, 0))
        print(stream.readline().decode().strip(), flush=True)
        connection.settimeout(240)
        stream.readline()
        print("closed", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)


def ping(ip, seconds):
    request = struct.pack("!BBHHH", 8, 0, 0, 71, 1)
    request = (
        request[:2] + struct.pack("!H", 0xFFFF - sum(struct.unpack("!4H", request))) + request[4:]
    )
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as echo:
        echo.settimeout(float(seconds))
        echo.sendto(request, (ip, 0))
        try:
            while echo.recv(1500)[20] != 0:
                pass
            print("answered")
        except TimeoutError:
            print("silence")


def transfer(ip, port, mib):
    _, stream = _connect(ip, port)
    stream.readline()
    block, size = os.urandom(1 << 20), int(mib) << 20
    sent, received = hashlib.sha256(), hashlib.sha256()

    def receive():
        left = size
        while left and (data := stream.read1(min(left, 1 << 18))):
            received.update(data)
            left -= len(data)

    receiver = threading.Thread(target=receive)
    receiver.start()
    for _ in range(int(mib)):
        stream.write(block)
        stream.flush()
        sent.update(block)
    receiver.join()
    print("intact" if sent.digest() == received.digest() else "corrupt")


if __name__ == "__main__":
    commands = (daemon, ask, talk, send_on_signal, wait, ping, transfer)
    {command.__name__: command for command in commands}[sys.argv[1]](*sys.argv[2:])
