# SPDX-License-Identifier: Apache-2.0
"""Tests of the REST API, none of which boots a VM."""
