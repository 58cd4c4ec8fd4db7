# SPDX-License-Identifier: Apache-2.0
"""Tempest tests of GSaaS. They know its REST API and nothing of its code, so nothing of `gsaas` is imported here."""
