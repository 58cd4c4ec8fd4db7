# SPDX-License-Identifier: Apache-2.0
"""Numbers of netlink attributes, from linux/netfilter/nf_tables.h, and the names that RODVR gives to chains."""

from __future__ import annotations

CHAIN_TABLE, CHAIN_NAME, CHAIN_HOOK, CHAIN_POLICY, CHAIN_TYPE, CHAIN_USERDATA = 1, 3, 4, 5, 7, 12
HOOK_NUMBER, HOOK_PRIORITY, HOOK_DEVICE = 1, 2, 3
RULE_TABLE, RULE_CHAIN, RULE_EXPRESSIONS = 1, 2, 4
LIST_TABLE, LIST_SET, LIST_ELEMENTS = 1, 2, 3
ELEMENT_KEY, ELEMENT_DATA, ELEMENT_EXPRESSION = 1, 2, 7
EXPRESSION_NAME, EXPRESSION_DATA = 1, 2
COUNTER_BYTES, COUNTER_PACKETS = 1, 2

CHAIN_PREFIX = "in-"
"""The chain on a tap is named after it: `in-tap11111111-11`."""
