# SPDX-License-Identifier: Apache-2.0
"""Tests against a real OpenStack, which the test bed in `tests.openstack.bed` brings up."""
