# SPDX-License-Identifier: Apache-2.0
"""Attacks: each must fail."""
