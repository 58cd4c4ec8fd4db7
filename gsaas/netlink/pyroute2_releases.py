# SPDX-License-Identifier: Apache-2.0
"""What differs between releases of pyroute2, and what is wrong in all of them. No other module depends on the release.

OpenStack's constraints have had 0.8.1 for years, while package indexes have 0.9. With what is here, all releases that
setup.cfg admits encode every message of RODVR and of the fence in the same bytes. What is not left to them:

- `Meta`: releases before 0.9.2 have no such numbers.
- Comments on tables: releases before 0.9 write them without the header by which `nft` knows that they are comments.
  `expressions.add_table` writes them itself.
- Flags of links: of `arp` and `state` in one request, releases before 0.9 obey only one, so both are given as
  numbers (`gsaas.rodvr.kernel.links`).
- `fwd`: every release gives an attribute of it a type that does not exist. `correct_fwd` corrects this.
- `socket`: no release knows control groups, which Linux 5.13 added. `complete_socket` adds them.

A class of message in pyroute2 is the library's public name; the class of an expression within it is not, so setup.cfg
names the first release that has not been tried.
"""

from __future__ import annotations

import enum

from pyroute2.netlink.nfnetlink import nftsocket as nft


class Meta(enum.IntEnum):
    """What `expressions.meta` can load, of those that gsaas uses: enum nft_meta_keys of linux/netfilter/nf_tables.h."""

    NFT_META_PROTOCOL = 1
    NFT_META_IIF = 4
    NFT_META_IIFNAME = 6
    NFT_META_OIFNAME = 7
    NFT_META_SKUID = 10
    NFT_META_NFPROTO = 15
    NFT_META_L4PROTO = 16


def correct_fwd() -> None:
    """Give NFTA_FWD_NFPROTO the type "be32": with "u32", encoding any `fwd` raises AttributeError.

    To be called before the first message is encoded; pyroute2 reads the types of a class once.
    """
    nft.nft_contains_expr.nft_expr.nft_fwd.nla_map = (
        ("NFTA_FWD_UNSPEC", "none"),
        ("NFTA_FWD_SREG_DEV", "regs"),
        ("NFTA_FWD_SREG_ADDR", "regs"),
        ("NFTA_FWD_NFPROTO", "be32"),
    )


NFT_SOCKET_CGROUPV2 = 3
"""The key of `socket` that loads the id of a control group."""


def complete_socket() -> None:
    """Give `socket` the attribute NFTA_SOCKET_LEVEL, and numbers as keys: no release has either.

    To be called before the first message is encoded; pyroute2 reads the types of a class once.
    """
    nft.nft_contains_expr.nft_expr.nft_socket.nla_map = (
        ("NFTA_SOCKET_UNSPEC", "none"),
        ("NFTA_SOCKET_KEY", "be32"),
        ("NFTA_SOCKET_DREG", "regs"),
        ("NFTA_SOCKET_LEVEL", "be32"),
    )
