# SPDX-License-Identifier: Apache-2.0
"""A whole control plane in one process, under one random number: the real code, and nothing real around it."""

from gsaas import rpc as rpc  # before oslo.messaging: it chooses threads as its backend
