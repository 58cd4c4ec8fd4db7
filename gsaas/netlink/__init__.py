# SPDX-License-Identifier: Apache-2.0
"""Netfilter netlink, for what programs nftables: RODVR on compute hosts, the fence on GPU hosts.

wire         attributes and messages as bytes     transport  atomic batches, dumps, errors
expressions  rule expressions, built by pyroute2  namespace  opening sockets in a network namespace
pyroute2_releases  what differs between releases of that library
"""
