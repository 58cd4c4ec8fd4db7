# SPDX-License-Identifier: Apache-2.0
"""All releases of pyroute2 that setup.cfg admits make the same of what RODVR and the fence send to the kernel."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyroute2.netlink.nfnetlink import nftsocket as nft

from gsaas.netlink import expressions as ex
from gsaas.netlink import wire
from gsaas.netlink.pyroute2_releases import Meta
from tests.unit.netlink import messages

EXPECTED = Path(__file__).with_name("messages.txt")


@pytest.mark.skipif(
    sys.byteorder != "little", reason="the digests are those of little-endian machines"
)
def test_every_message_is_encoded_as_by_the_other_releases() -> None:
    """A new release of pyroute2 that encodes one differently fails here, and so do rules that were changed."""
    assert messages.lines() == EXPECTED.read_text().splitlines()


def test_the_numbers_of_meta_are_those_that_pyroute2_decodes() -> None:
    names = nft.nft_contains_expr.nft_expr.nft_meta.meta_key.ops
    assert {names[key] for key in Meta} == {key.name for key in Meta}
    assert all(names[key] == key.name for key in Meta)


def test_the_numbers_of_meta_are_those_of_the_kernels_header() -> None:
    header = Path("/usr/include/linux/netfilter/nf_tables.h")
    if not header.exists():
        pytest.skip("the kernel's headers are not installed")
    _, _, rest = header.read_text().partition("enum nft_meta_keys {")
    keys, _, _ = rest.partition("}")
    numbers = {name: at for at, name in enumerate(re.findall(r"^\s*(NFT_META_\w+),", keys, re.M))}
    assert {key.name: key.value for key in Meta}.items() <= numbers.items()


def test_a_comment_is_marked_as_one() -> None:
    """Without the header, `nft` shows no comment."""
    message = ex.add_table(nft.NFPROTO_IPV4, "rodvr", 0, "a comment")
    assert wire.by_kind(message.body)[6] == b"\0\x0aa comment\0"
    assert wire.read_comment(wire.by_kind(message.body)[6]) == "a comment"


def test_a_comment_has_a_limit() -> None:
    assert len(wire.comment("é" * 126)) == 255
    assert len(wire.comment("x" * 253)) == 256
    with pytest.raises(ValueError, match="longer than the 253 bytes"):
        wire.comment("x" * 254)


def test_a_table_without_a_comment_has_no_user_data() -> None:
    message = ex.add_table(nft.NFPROTO_IPV4, "rodvr", 0, "")
    assert 6 not in wire.by_kind(message.body)


@pytest.mark.slow
def test_fwd_is_encoded_in_a_process_that_has_imported_pyroute2_before() -> None:
    """The correction comes too late only if a message with `fwd` was encoded before."""
    program = (
        "from pyroute2 import IPRoute\n"
        "from pyroute2.netlink.nfnetlink import nftsocket as nft\n"
        "from gsaas.netlink import expressions as ex\n"
        "print(ex.add_rule(nft.NFPROTO_NETDEV, 'rodvr', 'tap', [ex.forward_to(ex.R)]).body.hex())"
    )
    command = [sys.executable, "-c", program]
    body = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert b"fwd\0" in bytes.fromhex(body)
