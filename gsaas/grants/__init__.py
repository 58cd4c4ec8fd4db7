"""Grants: how a consumer that is told real addresses proves, once, that they are meant for it.

keyring       signs grants and verifies them: no I/O
redemption    admits the address that a grant is presented from: the database edge
grant_client  presents a grant at the gate of a GPU host, from the consumer's machine

The gate itself is `gsaas.gpu_host.gate`.
"""
