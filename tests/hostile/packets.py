# SPDX-License-Identifier: Apache-2.0
"""What a VM sends that no network stack would: raw frames out of eth0, written to a packet socket.

    packets.py fragments SOURCE IP COUNT      first fragments of COUNT datagrams whose rest never comes
    packets.py syns SOURCE IP PORT COUNT      the beginning of COUNT connections, each from another port
    packets.py frames HEX...                  frames as they are
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


def frame(source, ip, protocol, payload, *, mac, number=0, flags=0x4000, options=b""):
    """Return an Ethernet frame with one IPv4 packet; *flags* are its flags and fragment offset."""
    words = 5 + len(options) // 4
    ends = socket.inet_aton(source) + socket.inet_aton(ip) + options
    size = 4 * words + len(payload)
    head = struct.pack("!BBHHHBBH", 0x40 | words, 0, size, number, flags, 64, protocol, 0)
    head = head[:10] + struct.pack("!H", checksum(head + ends)) + ends
    return GATEWAY_MAC + mac + b"\x08\x00" + head + payload


def tagged(untagged, *tags):
    """Return *untagged* with 802.1Q tags of these VLANs, the outermost first."""
    return untagged[:12] + b"".join(struct.pack("!HH", 0x8100, tag) for tag in tags) + untagged[12:]


def arp_reply(ip, mac):
    """Return an ARP reply to all: *ip* is at *mac*."""
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2)
    sender = mac + socket.inet_aton(ip)
    return bytes([255] * 6) + mac + b"\x08\x06" + head + sender + sender


def syn(source, ip, source_port, port, bits=0x02):
    """Return the TCP header that begins a connection, or one with other flags than SYN."""
    ends = socket.inet_aton(source) + socket.inet_aton(ip)
    head = struct.pack("!HHIIBBHHH", source_port, port, 1, 0, 0x50, bits, 65535, 0, 0)
    pseudo = ends + struct.pack("!HH", socket.IPPROTO_TCP, len(head))
    return head[:16] + struct.pack("!H", checksum(pseudo + head)) + head[18:]


def send(frames):
    """Send *frames*, waiting where the device's queue is full."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((DEVICE, 0))
        for one in frames:
            raw.send(one)


def own_mac():
    text = Path(f"/sys/class/net/{DEVICE}/address").read_text()
    return bytes.fromhex(text.strip().replace(":", ""))


def frames(*texts):
    send(map(bytes.fromhex, texts))


def fragments(source, ip, count):
    part, mac = bytes(1400), own_mac()
    send(
        frame(source, ip, socket.IPPROTO_TCP, part, mac=mac, number=number & 0xFFFF, flags=0x2000)
        for number in range(int(count))
    )


def syns(source, ip, port, count):
    template = frame(source, ip, socket.IPPROTO_TCP, bytes(20), mac=own_mac())
    send(
        template[:34] + syn(source, ip, source_port, int(port))
        for source_port in range(FIRST_PORT, FIRST_PORT + int(count))
    )


def hold(ip, port, count):
    connections = []
    for _ in range(int(count)):
        connection = socket.socket()
        connection.settimeout(60)
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
    commands = (fragments, syns, frames, hold)
    {command.__name__: command for command in commands}[sys.argv[1]](*sys.argv[2:])
