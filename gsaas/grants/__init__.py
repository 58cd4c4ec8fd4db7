# SPDX-License-Identifier: Apache-2.0
"""Grants: how a consumer that uses real addresses proves, once, that it may use the GPUs of its lease.

keyring     signs grants and verifies them: no I/O
redemption  admits the address that a grant is presented from, in the database

The gate itself is `gsaas.gpu_host.gate`, and `gsaasclient.grant_client` presents a grant there.
"""
