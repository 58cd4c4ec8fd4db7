# SPDX-License-Identifier: Apache-2.0
"""Netfilter netlink: atomic batches, requests and dumps. Errors name the message that failed.

pyroute2 has sockets for this too. They are not used because they never report a batch that is
refused as a whole (out of memory, for example), and because a table owner is a *socket*: it has to live as
long as the service, whichever thread is calling.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence

from pyroute2.netlink import (
    NETLINK_NETFILTER,
    NLM_F_ACK,
    NLM_F_DUMP,
    NLM_F_DUMP_INTR,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
)
from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_NFTABLES

from gsaas.netlink import wire
from gsaas.netlink.namespace import entered
from gsaas.netlink.wire import Message

_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NLM_F_ACK_TLVS = 0x200
_NLMSGERR_ATTR_MSG = 1
_SOL_NETLINK, _NETLINK_CAP_ACK, _NETLINK_EXT_ACK = 270, 10, 11
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_HEADER = struct.Struct("=IHHIIBBH")
_ANSWER = struct.Struct("=IHHII")
_DUMP_TRIES = 10


class NetlinkRefused(OSError):
    """The kernel refused a message, and applied nothing of its batch.

    `errno` is the reason, `what` the description of the message, *extack* the kernel's own explanation.
    """

    def __init__(self, code: int, what: str, extack: str = "") -> None:
        super().__init__(code, f"{what}: {os.strerror(code)}" + (f" ({extack})" if extack else ""))
        self.what = what

    def __str__(self) -> str:
        return str(self.strerror)


class Nfnetlink:
    """One netfilter socket, in the network namespace *netns* (None: this process's).

    Safe to share between threads: exchanges are serialized. *timeout* is the time in seconds after which
    an answer that does not come raises `TimeoutError`.
    """

    def __init__(self, netns: str | None = None, *, timeout: float = 30.0) -> None:
        with entered(netns):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        # A thousand VMs in one batch are megabytes; the ordinary limits are a few hundred kilobytes.
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 64 << 20)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_EXT_ACK, 1)
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_CAP_ACK, 1)
        self._socket.bind((0, 0))
        self._socket.settimeout(timeout)
        self.port_id: int = self._socket.getsockname()[0]
        """The kernel's number for this socket: it names a table's owner and a notification's sender."""
        self._buffer = bytearray(256 << 10)
        self._sequence = int.from_bytes(os.urandom(3), "big")
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the socket. Tables that it owns disappear, unless they are persistent."""
        self._socket.close()

    def transact(self, messages: Sequence[Message]) -> None:
        """Apply *messages* as one transaction, or raise `NetlinkRefused` for the first one refused."""
        if not messages:
            return
        with self._lock:
            first = self._sequence
            last = first + len(messages)
            self._sequence = (last + 2) & 0x7FFFFFFF  # one for the end of the batch
            parts = [_batch_edge(_BATCH_BEGIN, first)]
            sequence = first
            for message in messages:
                sequence += 1
                # The kernel answers in order, so asking for the last answer is asking for all.
                flags = NLM_F_ACK if sequence == last else 0
                parts.append(_encode(message, sequence, flags))
            parts.append(_batch_edge(_BATCH_END, last + 1))
            self._socket.send(b"".join(parts))
            refusal: NetlinkRefused | None = None
            done = False
            while not done:
                for kind, flags, sequence, body in self._receive():
                    if kind != NLMSG_ERROR or not first <= sequence <= last:
                        continue
                    code, extack = _error(body, flags)
                    if code and refusal is None:
                        what = (
                            "nftables batch"
                            if sequence == first
                            else messages[sequence - first - 1].what
                        )
                        refusal = NetlinkRefused(code, what, extack)
                    # An error about the batch itself is the only answer there will be.
                    if sequence == last or (sequence == first and code):
                        done = True
            if refusal is not None:
                raise refusal

    def request(self, message: Message) -> list[bytes]:
        """Send one message outside any batch and return the bodies of the answers.

        Raises `NetlinkRefused` if the kernel refuses it.
        """
        return self._exchange(message, NLM_F_ACK)

    def dump(self, message: Message) -> list[bytes]:
        """Return all objects that *message* asks for, as bodies without headers.

        A dump that changes while it is read is repeated. Raises `NetlinkRefused` if the kernel refuses it, or
        with EBUSY if it changed every time.
        """
        for _ in range(_DUMP_TRIES):
            try:
                return self._exchange(message, NLM_F_DUMP)
            except InterruptedError:
                continue
        raise NetlinkRefused(
            errno.EBUSY, f"{message.what}: changed {_DUMP_TRIES} times while it was read"
        )

    def _exchange(self, message: Message, extra: int) -> list[bytes]:
        with self._lock:
            own_sequence = self._sequence
            self._sequence = (own_sequence + 1) & 0x7FFFFFFF
            self._socket.send(_encode(message, own_sequence, extra))
            answers: list[bytes] = []
            interrupted = False
            while True:
                for kind, flags, sequence, body in self._receive():
                    if sequence != own_sequence:
                        continue  # a late answer to a request that timed out
                    interrupted |= bool(flags & NLM_F_DUMP_INTR) and extra == NLM_F_DUMP
                    if kind == NLMSG_ERROR:
                        code, extack = _error(body, flags)
                        if code:
                            raise NetlinkRefused(code, message.what, extack)
                    if kind in (NLMSG_ERROR, NLMSG_DONE):
                        if interrupted:
                            raise InterruptedError
                        return answers
                    answers.append(body[4:])

    def _receive(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Receive one datagram, and yield its messages as (type, flags, sequence, body after the netlink header)."""
        size = self._socket.recv_into(self._buffer)
        # A copy: callers keep slices of it, and the buffer is used again.
        datagram = bytes(memoryview(self._buffer)[:size])
        offset = 0
        while offset + 16 <= size:
            length, kind, flags, sequence, _ = _ANSWER.unpack_from(datagram, offset)
            yield kind, flags, sequence, datagram[offset + 16 : offset + length]
            offset += (length + 3) & ~3


def _encode(message: Message, sequence: int, extra: int) -> bytes:
    body = message.body
    flags = NLM_F_REQUEST | message.flags | extra
    head = (len(body) + 20, message.kind, flags, sequence, 0, message.family, message.version, 0)
    return _HEADER.pack(*head) + body


def _batch_edge(kind: int, sequence: int) -> bytes:
    subsystem = socket.htons(NFNL_SUBSYS_NFTABLES)
    return _HEADER.pack(20, kind, NLM_F_REQUEST, sequence, 0, socket.AF_UNSPEC, 0, subsystem)


def _error(body: bytes, flags: int) -> tuple[int, str]:
    """Return (errno or 0, the kernel's explanation or "") of an NLMSG_ERROR."""
    (code,) = struct.unpack_from("=i", body)
    if not flags & _NLM_F_ACK_TLVS:
        return -code, ""
    # NETLINK_CAP_ACK: the failing message is quoted as its 16 byte header only.
    return -code, wire.string(wire.by_kind(body[20:]).get(_NLMSGERR_ATTR_MSG))
