# SPDX-License-Identifier: Apache-2.0
"""Every message that builds the tables of RODVR and of the fence, each as a line: what it does, its length, its digest.

    .venv/bin/python -m tests.unit.netlink.messages > tests/unit/netlink/messages.txt

writes what pyroute2's releases are compared with. It changes with the rules, whose `VERSION` is then increased.
"""

from __future__ import annotations

import hashlib
import ipaddress

from gsaas.gpu_host.fence import layout as fence_layout
from gsaas.gpu_host.fence import ruleset as fence
from gsaas.netlink import expressions as ex
from gsaas.netlink.wire import Message
from gsaas.rodvr.config import USUAL
from gsaas.rodvr.kernel import ruleset as rodvr

OWNED = ex.OWNER | ex.PERSIST
FENCE = fence_layout.FenceLayout(
    ((8308, 8400), (20000, 29999)), 64, fence_layout.ControlGroup(4711, 2), 3
)


def rodvr_messages(guarded: bool) -> list[Message]:
    """Return the messages of RODVR's tables with one tap."""
    config = rodvr.RulesetConfig(
        ipaddress.ip_network("169.254.71.0/24"),
        ipaddress.ip_network("240.71.0.0/16"),
        ipaddress.ip_network("169.254.72.0/21"),
        "gpu0",
        7,
        guarded,
        USUAL,
    )
    tap = rodvr.tap_rules(config, b"\x0a\0\0\5", b"\xf0\x47\0\1")
    return [
        *rodvr.add_tables(config, OWNED),
        *rodvr.base(config),
        *[ex.add_rule(rodvr.NETDEV, rodvr.TABLE, "tap", rule) for rule in tap],
        ex.delete_table(rodvr.IPV4, rodvr.TABLE),
    ]


def lines() -> list[str]:
    """Return a line for the version of each kind of rules, and for each message."""
    parts = {
        f"rodvr {rodvr.VERSION}, guarded": rodvr_messages(guarded=True),
        f"rodvr {rodvr.VERSION}, open": rodvr_messages(guarded=False),
        f"fence {fence_layout.VERSION}": fence.build(FENCE, OWNED),
    }
    found = []
    for title, messages in parts.items():
        found.append(title)
        for message in messages:
            head = f"{message.kind:#x} {message.family} {message.flags:#x}"
            digest = hashlib.sha256(message.body).hexdigest()[:16]
            found.append(f"  {message.what}: {head} {len(message.body)} bytes {digest}")
    return found


if __name__ == "__main__":
    print(*lines(), sep="\n")  # noqa: T201
