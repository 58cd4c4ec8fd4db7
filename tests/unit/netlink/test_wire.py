# SPDX-License-Identifier: Apache-2.0
"""Bytes that are laid out by hand are what pyroute2 makes of the same."""

from __future__ import annotations

import socket

import pytest
from pyroute2.netlink.nfnetlink import nftsocket as nft

from gsaas.netlink import wire
from gsaas.netlink.wire import Message
from gsaas.objects.address import Address
from gsaas.rodvr.kernel import encoder


def decoded(message: Message, message_class: type) -> dict[str, object]:
    """The message's attributes, as pyroute2 reads them."""
    body = bytes([message.family, 0, 0, 0]) + message.body
    header = (len(body) + 16).to_bytes(4, "little") + bytes(12)
    parsed = message_class(header + body)
    parsed.decode()
    return dict(parsed["attrs"])


def element(key: bytes, data: bytes | None) -> dict[str, bytes | None]:
    return {"key": key, "data": data}


def elements(message: Message) -> list[dict[str, bytes | None]]:
    fields = decoded(message, nft.nft_set_elem_list_msg)
    found = []
    for raw in fields["NFTA_SET_ELEM_LIST_ELEMENTS"]:  # type: ignore[attr-defined]
        parts = {
            name: value.get_attr("NFTA_DATA_VALUE")
            for name, value in raw["attrs"]
            if name in ("NFTA_SET_ELEM_KEY", "NFTA_SET_ELEM_DATA")
        }
        found.append(element(parts["NFTA_SET_ELEM_KEY"], parts.get("NFTA_SET_ELEM_DATA")))
    return found


def test_attributes_are_padded_and_found_again() -> None:
    packed = wire.text(1, "abc") + wire.attribute(2, b"12345") + wire.be32(3, -500)
    assert len(packed) % 4 == 0
    assert list(wire.attributes(packed)) == [(1, b"abc\0"), (2, b"12345"), (3, b"\xff\xff\xfe\x0c")]


def test_what_is_no_attribute_ends_the_reading() -> None:
    assert list(wire.attributes(wire.text(1, "abc") + b"\0\0\0\0\0\0\0\0")) == [(1, b"abc\0")]
    assert wire.string(None) == ""


def test_mappings_are_packed_as_pyroute2_would() -> None:
    masked, real = Address("169.254.71.1", 8308), Address("192.0.2.7", 14833)
    key = socket.inet_aton("240.71.0.1") + socket.inet_aton("169.254.71.1") + b"\x20\x74\0\0"
    value = socket.inet_aton("192.0.2.7") + b"\x39\xf1\0\0"
    (add,) = encoder.add_mappings("240.71.0.1", {masked: real})
    (delete,) = encoder.delete_mappings("240.71.0.1", (masked,))
    assert elements(add) == [element(key, value)]
    assert elements(delete) == [element(key, None)]


@pytest.mark.slow
def test_many_mappings_are_split_below_what_an_attribute_can_hold() -> None:
    many = {Address("169.254.71.1", port): Address("192.0.2.7", port) for port in range(1, 4001)}
    messages = encoder.add_mappings("240.71.0.1", many)
    assert [len(elements(message)) for message in messages] == [1500, 1500, 1000]
