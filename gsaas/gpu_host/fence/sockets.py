# SPDX-License-Identifier: Apache-2.0
"""Ends connections to daemons of this host (SOCK_DESTROY of sock_diag(7), Linux 4.9).

The daemon's socket fails at once and its client receives a reset, so neither waits for a timeout. Where the kernel was
built without it, the fence's table still cuts the client off, and the daemon learns of it by TCP keepalive.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
from collections.abc import Collection

from gsaas.netlink import sock_diag
from gsaas.netlink.namespace import entered
from gsaas.objects.daemon import Admission

LOG = logging.getLogger(__name__)


def destroy(netns: str | None, removed: Collection[Admission], *, here: str) -> int:
    """End the connections from the addresses to the local ports of *removed*; return how many were ended.

    *here* is the address that stands in *removed* for this host itself. *netns* is a network namespace, None the
    current one. Raises `OSError`.
    """
    if not removed:
        return 0
    targets = {(admission.address, admission.port) for admission in removed}
    ended = 0
    with entered(netns):
        netlink = sock_diag.open_socket()
    with netlink:
        for family in (socket.AF_INET, socket.AF_INET6):
            for identity in list(sock_diag.identities(netlink, family, sock_diag.CONNECTED)):
                port = int.from_bytes(identity[0:2], "big")
                local, peer = (_address(family, identity[at : at + 16]) for at in (4, 20))
                source = here if peer == local or peer.startswith("127.") else peer
                if (source, port) in targets:
                    ended += _destroy(netlink, family, identity)
    return ended


def _destroy(netlink: socket.socket, family: int, identity: bytes) -> bool:
    code = sock_diag.destroy(netlink, family, identity)
    if code == errno.EOPNOTSUPP:
        LOG.warning(
            "this kernel cannot end connections (SOCK_DESTROY); daemons learn of it by keepalive"
        )
    return code == 0  # any other error: the connection ended by itself meanwhile


def _address(family: int, raw: bytes) -> str:
    if family == socket.AF_INET:
        return str(ipaddress.IPv4Address(raw[:4]))
    address = ipaddress.IPv6Address(raw)
    return str(address.ipv4_mapped or address)
