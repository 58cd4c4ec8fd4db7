# SPDX-License-Identifier: Apache-2.0
"""What a VM sends that no network stack would: raw frames out of eth0, written to a packet socket.

    packets.py fragments SOURCE IP COUNT      first fragments of COUNT datagrams whose rest never comes
    packets.py syns SOURCE IP PORT COUNT      the beginning of COUNT connections, each from another port
    packets.py hold IP PORT COUNT             keeps COUNT connections; prints how many it got, and ends with stdin

Only the standard library, as `tests.kernel.rodvr.peers`.
"""

# ruff: noqa: T201 - printing is how these programs answer

import socket
import struct
import sys
from pathlib import Path

DEVICE = "eth0"
FIRST_PORT = 1024
GATEWAY_MAC = bytes.fromhex("02524f445601")
"""RODVR's MAC, as ARP tells it to the VM."""


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(source, ip, protocol, payload, *, number=0, flags=0x4000):
    """Return an Ethernet frame with one IPv4 packet; *flags* are its flags and fragment offset."""
    mac = bytes.fromhex(
        Path(f"/sys/class/net/{DEVICE}/address").read_text().strip().replace(":", "")
    )
    ends = socket.inet_aton(source) + socket.inet_aton(ip)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), number, flags, 64, protocol, 0)
    head = head[:10] + struct.pack("!H", checksum(head + ends)) + ends
    return GATEWAY_MAC + mac + b"\x08\x00" + head + payload


def syn(source, ip, source_port, port):
    ends = socket.inet_aton(source) + socket.inet_aton(ip)
    head = struct.pack("!HHIIBBHHH", source_port, port, 1, 0, 0x50, 0x02, 65535, 0, 0)
    pseudo = ends + struct.pack("!HH", socket.IPPROTO_TCP, len(head))
    return head[:16] + struct.pack("!H", checksum(pseudo + head)) + head[18:]


def send(frames):
    """Send *frames*, waiting where the device's queue is full."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((DEVICE, 0))
        for one in frames:
            raw.send(one)


def fragments(source, ip, count):
    part = bytes(1400)
    send(
        frame(source, ip, socket.IPPROTO_TCP, part, number=number & 0xFFFF, flags=0x2000)
        for number in range(int(count))
    )


def syns(source, ip, port, count):
    template = frame(source, ip, socket.IPPROTO_TCP, bytes(20))
    send(
        template[:34] + syn(source, ip, source_port, int(port))
        for source_port in range(FIRST_PORT, FIRST_PORT + int(count))
    )


def hold(ip, port, count):
    connections = []
    for _ in range(int(count)):
        connection = socket.socket()
        connection.settimeout(3)
        try:
            connection.connect((ip, int(port)))
            connection.recv(1)  # the daemon greets: it is no connection that ends at once
        except OSError:
            connection.close()
        else:
            connections.append(connection)
    print(len(connections), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    commands = (fragments, syns, hold)
    {command.__name__: command for command in commands}[sys.argv[1]](*sys.argv[2:])
