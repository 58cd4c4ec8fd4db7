# SPDX-License-Identifier: Apache-2.0
"""The command `gsaas` of tenants and administrators."""
