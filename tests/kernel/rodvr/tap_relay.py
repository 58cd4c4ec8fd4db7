# SPDX-License-Identifier: Apache-2.0
"""A hypervisor's half of a network card: a real tap on the host, relayed to one that is the VM's card.

    tap_relay.py HOST_NAMESPACE TAP VM_NAMESPACE MAC vnet|plain

With `vnet`, frames carry their virtio-net header both ways, as QEMU and vhost do it: unsegmented, with
checksums still to be made.
"""

import ctypes
import errno
import fcntl
import os
import struct
import subprocess
import sys
import threading

TUNSETIFF, TUNSETOFFLOAD, TUNSETVNETHDRSZ = 0x400454CA, 0x400454D0, 0x400454D8
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x2, 0x1000, 0x4000
CHECKSUM, TSO4, TSO6, TSO_ECN = 1, 2, 4, 8
CLONE_NEWNET = 0x40000000
GONE = (errno.EIO, errno.EINVAL, errno.EBADFD)


def open_tap(namespace: str, name: str, vnet: bool) -> int:
    place = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    assert ctypes.CDLL(None).setns(place, CLONE_NEWNET) == 0
    os.close(place)
    tap = os.open("/dev/net/tun", os.O_RDWR)
    flags = IFF_TAP | IFF_NO_PI | (IFF_VNET_HDR if vnet else 0)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    if vnet:
        fcntl.ioctl(tap, TUNSETVNETHDRSZ, struct.pack("i", 12))
        fcntl.ioctl(tap, TUNSETOFFLOAD, CHECKSUM | TSO4 | TSO6 | TSO_ECN)
    return tap


def copy(source: int, destination: int) -> None:
    while True:
        try:
            os.write(destination, os.read(source, 70000))
        except OSError as error:
            if error.errno not in GONE:
                raise


def main(host: str, name: str, vm: str, mac: str, mode: str) -> None:
    taps = open_tap(host, name, mode == "vnet"), open_tap(vm, "eth1", mode == "vnet")
    subprocess.run(["ip", "-n", host, "link", "set", name, "up"], check=True)
    subprocess.run(["ip", "-n", vm, "link", "set", "eth1", "address", mac, "up"], check=True)
    print("ready", flush=True)  # noqa: T201 - read by the test
    threading.Thread(target=copy, args=taps, daemon=True).start()
    copy(*reversed(taps))


if __name__ == "__main__":
    main(*sys.argv[1:])
